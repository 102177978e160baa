#!/bin/sh
# Makes a bundle, unpacks it elsewhere and checks that its programs run there and take nothing but
# the C library and the Vulkan driver from the system. Usage: test_bundle.sh BUILD_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

archive=$("$here/bundle.sh" "$1" "$work")
mkdir "$work/empty" "$work/home"
cd "$work/empty"
tar -xf "$archive"
cd ./*
top=$(pwd)
clean() { env -i PATH=/usr/bin:/bin HOME="$work/home" "$@"; }

foreign=$(clean LD_LIBRARY_PATH="$top/lib:$top/lib/c++" ldd bin/* lib/*.so* lib/c++/* |
  awk '$2 == "=>" {print $1, $3}' | grep -v " $top/lib/" |
  grep -Ev '^lib(c|m|dl|rt|pthread|resolv|util|anl|mvec)\.so\.' || true)
if [ -n "$foreign" ]; then
  echo "taken from the system: $foreign"
  exit 1
fi

for program in bin/*; do
  clean LD_DEBUG=files LD_DEBUG_OUTPUT="$work/loaded" "./$(basename "$program")" --help > /dev/null
done
clean LD_DEBUG=files LD_DEBUG_OUTPUT="$work/loaded" ./rewind_tests --test-case='vulkan: transfers'
for library in lib/*.so.* lib/c++/*.so.*; do
  grep -qF "calling init: $top/$library" "$work"/loaded.* || [ ! -L "$library" ] || {
    echo "$library was not loaded from the bundle"
    exit 1
  }
done
clean ./mnist --plan --device dry:rx7900xtx.json --images 64 --data mnist > "$work/plan"
grep -q 'RX 7900 XTX' "$work/plan"
most=60 # MiB
if [ "$(stat -c %s "$archive")" -gt $((most << 20)) ]; then
  echo "the bundle is larger than $most MiB"
  exit 1
fi
echo "$(basename "$archive"), $(du -h "$archive" | cut -f 1)"
