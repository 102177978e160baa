#!/bin/sh
# Installs a build into a folder of its own and checks what a user gets: the headers, and the program
# beside this file built through pkg-config (static and shared), CMake and as a Meson subproject.
# Usage: run.sh BUILD_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
root=$build/install-test
rm -rf "$root"
compiler=${CXX:-c++}

# quietly LOG COMMAND...: shows the log if the command fails.
quietly() {
  log=$root/$1.log
  shift
  "$@" > "$log" 2>&1 || { cat "$log"; exit 1; }
}

DESTDIR=$root/installed meson install -C "$build" --no-rebuild --quiet --tags devel,runtime
prefix=$(dirname "$(dirname "$(find "$root/installed" -name rewind.h)")")
prefix=${prefix%/include}
libraries=$(dirname "$(find "$root/installed" -name librewind.a)")
PKG_CONFIG_PATH=$(dirname "$(find "$root/installed" -name rewind.pc)")
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR="$root/installed"
# shellcheck disable=SC2046  # flags are words
compile() { "$compiler" -std=c++20 $(pkg-config --cflags rewind) "$@"; }

# One -I is enough, and the installed headers are those that <rewind/rewind.h> and training programs reach.
pkg-config --cflags-only-I rewind | tr ' ' '\n' | grep -qx -- "-I$prefix/include"
if pkg-config --cflags rewind | grep 'include/rewind'; then exit 1; fi
(cd "$prefix/include" && find rewind -name '*.h' | sort) > "$root/installed.txt"
for part in rewind trainer/trainer trainer/adamw_options trainer/language/bert_tokenizer \
  trainer/language/language_model trainer/language/text_generation trainer/loop/batch_shapes trainer/program/ranking; do
  echo "#include <rewind/$part.h>"
done > "$root/all.cpp"
compile -M "$root/all.cpp" | tr ' \\' '\n\n' | grep "^$prefix/include/" | xargs realpath --relative-to="$prefix/include" |
  sort -u > "$root/reached.txt"
diff "$root/installed.txt" "$root/reached.txt"
# Each header is complete by itself; together they define no macro of ours except REWIND_...
sed 's/.*/#include <&>/' "$root/installed.txt" > "$root/each.cpp"
compile -fsyntax-only "$root/each.cpp"
for part in nn/layers optim/adam ops/ops data/images/loader io/models/model; do
  echo "#include <rewind/$part.h>" > "$root/part.cpp"
  compile -fsyntax-only "$root/part.cpp"
done
if grep -rnE '^ *# *define ' "$prefix/include/rewind" | grep -vE 'define REWIND_'; then
  echo 'these macros reach users'
  exit 1
fi
# A shared library exports only namespace rw.
strange=$(nm -DC --defined-only "$libraries/librewind.so" | sed 's/^[0-9a-f]* . //' |
  grep -vE '(^|[ (<,&*])rw::' || true)
test -z "$strange" || { echo "librewind.so shows $strange"; exit 1; }

# Programs can open the library late, as Python does: its thread-local storage of the initial-exec model, for which the C
# library then has 1664 bytes, leaves room for others.
bytes=$(readelf -lW "$libraries/librewind.so" | awk '$1 == "TLS" { print $6 }')
test "$((bytes))" -le 832 || { echo "librewind.so has $((bytes)) bytes of thread-local storage"; exit 1; }
LD_LIBRARY_PATH=$libraries python3 -c 'import ctypes; ctypes.CDLL("librewind.so.0")'

# The programs lie together, and `rewind COMMAND` finds them; the Debian package has the same version.
DESTDIR=$root/programs meson install -C "$build" --no-rebuild --quiet --tags programs
launcher=$(find "$root/programs" -path '*/bin/rewind')
for name in resnet bert asr lm lora mnist top info tune; do
  test -x "$(find "$root/programs" -path "*/libexec/rewind/$name")" || { echo "$name is not installed"; exit 1; }
done
test "$("$launcher" --version)" = "$(sed -n '1s/ (\(.*\)) .*/ \1/p' "$source/debian/changelog")"
"$launcher" help | grep -q 'Usage: rewind resnet'
for wrong in nonsense 'plan nonsense'; do
  # shellcheck disable=SC2086  # words
  if "$launcher" $wrong 2> "$root/wrong.txt"; then exit 1; fi
done
grep -q 'plan what' "$root/wrong.txt"

# The program of docs/library.md is the one tested here, and README.md shows lines of it.
python3 - "$source" "$here/main.cpp" << 'CHECK'
import pathlib, re, sys, textwrap
source, program = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text()
shown = {page: re.search("^```cpp\n(.*?)^```$", (source / page).read_text(), re.M | re.S)[1]
         for page in ("README.md", "docs/library.md")}
if textwrap.indent(shown["README.md"], "  ") not in program or shown["docs/library.md"] != program:
    sys.exit("README.md or docs/library.md shows other code than tests/install/main.cpp")
CHECK

run_on() {
  for device in "$@"; do
    echo "$program on $device"
    LD_LIBRARY_PATH=$libraries "$program" "$device"
  done
}
for kind in static shared; do
  test $kind = static && is_static=true || is_static=false
  quietly meson-$kind meson setup "$root/$kind" "$here" -Dstatic_rewind=$is_static
  quietly compile-$kind meson compile -C "$root/$kind"
  program=$root/$kind/example
  run_on cpu vulkan
done
readelf -d "$root/shared/example" | grep -q 'librewind.so.0'
# A user's own training program.
# shellcheck disable=SC2046  # flags are words
compile "$source/examples/trainer.cpp" -o "$root/trainer" $(pkg-config --cflags --libs rewind_trainer)
LD_LIBRARY_PATH=$libraries "$root/trainer" --device cpu --dtype f32 --plan | grep -q 'peak'

if command -v cmake > /dev/null; then
  quietly cmake cmake -G Ninja -S "$here" -B "$root/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
  quietly cmake-build cmake --build "$root/cmake"
  program=$root/cmake/example
  run_on cpu
else
  echo 'no cmake: find_package(rewind) is not tried'
fi

# As a subproject, only the library and the compiler of its shaders are configured. Compiling it once more would take
# minutes, so only the user's part is compiled.
mkdir -p "$root/with/subprojects"
cp "$here/main.cpp" "$here/meson.build" "$here/meson_options.txt" "$root/with/"
ln -s "$source" "$root/with/subprojects/rewind"
quietly subproject env PKG_CONFIG_PATH="" meson setup --wrap-mode=forcefallback "$root/sub" "$root/with"
meson introspect "$root/sub" --targets |
  python3 -c 'import json, sys
names = {t["name"] for t in json.load(sys.stdin) if t["type"] == "executable"}
sys.exit(f"built in a subproject: {names}" if names != {"example", "shader_compiler"} else 0)'
quietly subproject-compile ninja -C "$root/sub" example.p/main.cpp.o
