#!/bin/sh
# Runs bin/NAME with the libraries of this folder.
here=$(dirname "$(readlink -f "$0")")
libraries=$here/lib

# This machine's Vulkan driver shares our C++ runtime, so ours is left out if the machine's is newer.
release() { readlink -f "$1" | sed 's/.*\.//'; }  # 30 for libstdc++.so.6.0.30
system=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null |
  sed -n 's/.*libstdc++\.so\.6 (libc6,.* => //p' | head -n 1)
if [ -z "$system" ] || [ "$(release "$system")" -le "$(release "$here/lib/c++/libstdc++.so.6")" ]; then
  libraries=$libraries:$here/lib/c++
fi

export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/bin/$(basename "$0")" "$@"
