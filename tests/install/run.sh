#!/bin/sh
# Installs a build into a folder of its own, builds the project beside this file against it through
# pkg-config, and runs that. Usage: run.sh BUILD_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
root=$build/install-test
rm -rf "$root"

DESTDIR=$root/installed meson install -C "$build" --no-rebuild --quiet --tags devel
PKG_CONFIG_PATH=$(dirname "$(find "$root/installed" -name rewind.pc)")
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR="$root/installed"

# Every header is installed, and includes only what is installed too.
cd "$source"
find backends/open.h core nn optim io data -name '*.h' ! -path 'core/ops/*' |
  sed 's/.*/#include <&>/' > "$root/all.cpp"
# shellcheck disable=SC2046  # flags are words
${CXX:-c++} -std=c++20 -fsyntax-only $(pkg-config --cflags rewind) "$root/all.cpp"

# The program of README.md is the one tested here.
# shellcheck disable=SC2016  # no shell in these quotes
sed -n '/^```cpp$/,/^```$/p' README.md | grep -v '^```' | diff - "$here/main.cpp"

meson setup "$root/build" "$here" > "$root/setup.log" || { cat "$root/setup.log"; exit 1; }
meson compile -C "$root/build" > "$root/compile.log" || { cat "$root/compile.log"; exit 1; }
for device in cpu vulkan; do
  echo "example on $device"
  "$root/build/example" "$device"
done
