#!/bin/sh
# Packs the built programs with every shared library they need but the C library's and the Vulkan
# driver. Prints the name of the archive. Usage: bundle.sh BUILD_DIR OUT_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd -P)
out=$2
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" "$here/../meson.build")
name=rewind-$version-linux-$(uname -m)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
top=$stage/$name
mkdir -p "$top/bin" "$top/lib/c++" "$top/licenses"

for program in "$build"/apps/* "$build"/tools/* "$build"/benchmarks/* \
  "$build"/tests/rewind_tests; do
  if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi
  strip -o "$top/bin/$(basename "$program")" "$program"
  cp "$here/launcher.sh" "$top/$(basename "$program")"
  ldd "$program" >> "$stage/ldd" # as it is built: the library lies beside it
done

cp "$here/gpu.sh" "$top/gpu"
mkdir "$top/peers"
cp "$here"/../benchmarks/peers/*.py "$top/peers/"
cp "$here/../benchmarks/speed.py" "$top/"

# Prints "SONAME PATH" of every library that the programs load, except the C library's own parts.
if grep 'not found' "$stage/ldd" >&2; then exit 1; fi
awk '$2 == "=>" && !seen[$1]++ {print $1, $3}' "$stage/ldd" |
  grep -Ev '^lib(c|m|dl|rt|pthread|resolv|util|anl|mvec)\.so\.' > "$stage/libraries"
while read -r soname path; do
  file=$(readlink -f "$path")
  case $soname in
    libstdc++.so.6 | libgcc_s.so.1) folder=$top/lib/c++ ;;  # launcher.sh may leave these out
    *) folder=$top/lib ;;
  esac
  strip -o "$folder/$(basename "$file")" "$file"
  [ "$(basename "$file")" = "$soname" ] || ln -s "$(basename "$file")" "$folder/$soname"
  case $file in "$build"/*) continue ;; esac # ours
  # Packages may still say /lib for /usr/lib.
  package=$({ dpkg -S "$file" || dpkg -S "${file#/usr}"; } 2> /dev/null | cut -d : -f 1)
  cp "/usr/share/doc/$package/copyright" "$top/licenses/$package"
done < "$stage/libraries"
cp "$here/../LICENSE" "$top/licenses/rewind"
mkdir "$top/profiles"
cp "$here"/../benchmarks/profiles/*.json "$top/profiles/"

glibc=$(find "$top/bin" "$top/lib" -type f -exec objdump -T {} + |
  grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1 | tr _ ' ')
cat > "$top/README.txt" << TEXT
Rewind $version: deep-learning training through Vulkan.

Programs: $(find "$top/bin" -type f -printf '%f\n' | sort | tr '\n' ' ')
Run one from any folder, with --help for its options:  ./resnet --help

profiles/ are devices that need not be there, to plan for:  ./resnet --plan --device dry:rx7900xtx.json

./gpu checks and measures this machine's GPU, or CPU driver, and writes a report; ./gpu --help.

They bring their libraries along and need from the machine: Linux on $(uname -m), $glibc or newer, and
for a GPU a Vulkan 1.2 driver. Without one they compute on the CPU.
TEXT

mkdir -p "$out"
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner -I 'xz -T0 -3' -cf "$out/$name.tar.xz" "$name"
echo "$out/$name.tar.xz"
