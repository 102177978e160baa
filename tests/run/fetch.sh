# Fetches Vulkan drivers for the tests: Debian's packages, unpacked into the folder $drivers. Sourced by `rewind`. A driver
# is there as a whole or not at all: it is made in .new-NAME, tried, and renamed.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
swiftshader=/usr/lib/chromium/vk_swiftshader_icd.json

# The lavapipe of Debian 12's backports, and the newest one, which brings its own C library.
fast=lavapipe-backports newest=lavapipe-forky
drivers=${REWIND_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rewind}/drivers

# of_system NAME: prints a value of os-release.
of_system() { (unset "$1"; . /etc/os-release 2> /dev/null && echo "${!1:-}"); }

is_debian_12() { [[ $(of_system ID) == debian && $(of_system VERSION_CODENAME) == bookworm ]]; }

# Prints why nothing can be fetched here, or nothing.
cannot_fetch() {
  local program
  if [[ -n ${REWIND_NO_INSTALL:-} ]]; then
    echo "REWIND_NO_INSTALL is set, which forbids it"
    return
  fi
  for program in apt-get dpkg-deb ldd; do
    if ! command -v "$program" > /dev/null; then
      echo "it takes $program of a Debian system, which is not here"
      return
    fi
  done
  if [[ ! -f $keyring ]]; then echo "$keyring must be there to check signatures: apt install debian-archive-keyring"; fi
}

# ---- fetching ------------------------------------------------------------------------------------

# The functions up to `fetch` are its parts: they work in the folder $work, and if they fail, $why has the reason.

# unpack STATUS SUITES PACKAGE...: unpacks the packages of the last suite, and those that they need beyond the ones that
# the file STATUS lists as installed, into $work/root. apt checks all signatures. It has lists of its own, so the system
# stays as it is, and nobody needs to be root.
unpack() {
  local status=$1 suites=$2 mirror suite package
  shift 2
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $(of_system VERSION_CODENAME)" 'Created-By: Packages' \
    2> /dev/null | head -n 1) || true
  mkdir -p "$work"/{root,parts,state/lists/partial,cache/archives/partial} && for suite in $suites; do
    echo "deb [signed-by=$keyring] ${mirror:-http://deb.debian.org/debian} $suite main"
  done > "$work/sources.list" || return 1
  local apt=(timeout --foreground -k 10 600 apt-get -qq --yes
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts="$work/parts"
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts="$work/parts"
    -o Dir::State="$work/state" -o Dir::State::Status="$status" -o Dir::Cache="$work/cache"
    -o Acquire::AllowInsecureRepositories=false -o Acquire::AllowDowngradeToInsecureRepositories=false
    -o Acquire::AllowWeakRepositories=false -o APT::Get::AllowUnauthenticated=false
    -o APT::Update::Error-Mode=any -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20
    # The lock would be that of the system's packages, which stay; we have our own. And if root runs this, apt's own user
    # has no access to root's cache folder.
    -o Debug::NoLocking=true -o APT::Sandbox::User=root)
  if ! "${apt[@]}" update > "$work/log" 2>&1 ||
    ! "${apt[@]}" -t "${suites##* }" --no-install-recommends --download-only install "$@" > "$work/log" 2>&1; then
    why="apt-get failed: $(grep '^E:' "$work/log" | head -n 2 | tr '\n' ' ')"
    return 1
  fi
  for package in "$work"/cache/archives/*.deb; do
    if [[ -f $package ]] && ! dpkg-deb -x "$package" "$work/root" 2> "$work/log"; then
      why="dpkg-deb failed: $(tail -n 1 "$work/log")"
      return 1
    fi
  done
}

# manifest FILE: the same for libraries in lib/ beside it.
manifest() { sed 's|\("library_path": *"\)[^"]*\(lib[^/"]*"\)|\1lib/\2|' "$1"; }

# Of lavapipe's packages it, and those libraries that it takes from them; all others are the system's.
make_lavapipe-backports() {
  local library file name
  has_room 300 || return 1
  unpack /var/lib/dpkg/status "bookworm bookworm-backports" mesa-vulkan-drivers || return 1
  library=$(find "$work/root" -name libvulkan_lvp.so | head -n 1)
  file=$(find "$work/root" -path '*/icd.d/lvp_icd*.json' | head -n 1)
  if [[ -z $library || -z $file ]]; then
    why="Debian has none newer than the one that is installed"
    return 1
  fi
  mkdir -p "$work/made/lib" && manifest "$file" > "$work/made/icd.json" && cp "$library" "$work/made/lib/" || return 1
  if ! LD_LIBRARY_PATH=${library%/*} ldd "$library" > "$work/ldd" 2>&1 || grep 'not found' "$work/ldd" > "$work/log"; then
    why="it does not load here: $(cat "$work/log")"
    return 1
  fi
  while read -r name file; do
    if [[ $file == "$work"/* && ! $name =~ ^lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so ]]; then
      cp -L "$file" "$work/made/lib/$name" || return 1
    fi
  done < <(awk '$2 == "=>" {print $1, $3}' "$work/ldd")
}

# All libraries down to the C library, for `ld.so --library-path`; GPUs' drivers, and Mesa's stand-ins for GPUs.
make_lavapipe-forky() {
  local library loader file
  has_room 600 || return 1
  : > "$work/installed" && unpack "$work/installed" forky mesa-vulkan-drivers mesa-drm-shim libvulkan1 || return 1
  library=$(find "$work/root" -name libvulkan_lvp.so | head -n 1)
  loader=$(find "$work/root" -name 'ld-linux*.so.*' | head -n 1)
  if [[ -z $library || -z $loader ]]; then
    why="the packages have no libvulkan_lvp.so or no ld-linux*.so"
    return 1
  fi
  mkdir "$work/made" && cp -L "$loader" "$work/made/ld.so" && mv "${library%/*}" "$work/made/lib" || return 1
  for file in "$work"/root/usr/share/vulkan/icd.d/*_icd*.json; do
    library=${file##*/} library=${library%%_icd*}
    manifest "$file" > "$work/made/$library.json" || return 1
  done
  mv "$work/made/lvp.json" "$work/made/icd.json"
}

# has_room MIB: tells whether so much fits into $work. apt waits forever if its lists do not fit.
has_room() {
  local free
  free=$(df -Pm "$work" | awk 'END {print $4}')
  if ((free >= $1)); then return 0; fi
  why="it takes $1 MiB in $drivers for a while, and there are $free MiB; make room, or name another folder with REWIND_CACHE"
  return 1
}

# fetch NAME: returns 0 if the driver is there, else 1 after a message, which stays in $why.
fetch() {
  local name=$1 work=$drivers/.new-$1
  why=
  if [[ -d $drivers/$name ]]; then return 0; fi
  say "fetching the Vulkan driver $name, signed by Debian, into $drivers; nothing is installed"
  rm -rf "$work"
  if (umask 077 && mkdir -p "$work") && "make_$name" && works "$work/made" && mv "$work/made" "$drivers/$name"; then
    rm -rf "$work"
    return 0
  fi
  rm -rf "$work"
  why=${why:-$work could not be written, is the disk full?}
  say "$name was not fetched: $why"
  return 1
}

# ---- running on a driver -------------------------------------------------------------------------

# on FILE VARIABLE=VALUE... [-- COMMAND...]: sets `runner`, the words before a program that is to run on the driver of
# the manifest FILE.
runner=()
on() { runner=(env VK_DRIVER_FILES="$1" VK_ICD_FILENAMES="$1" "${@:2}"); }

# on_fetched FOLDER: does the same for a driver from `fetch`.
on_fetched() {
  if [[ -f $1/ld.so ]]; then
    on "$1/icd.json" "$1/ld.so" --library-path "$1/lib"
  else
    on "$1/icd.json" LD_LIBRARY_PATH="$1/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  fi
}

# works FOLDER: tells whether the driver in it has a device that computes right. `info` opens it, which checks it.
works() {
  local found runner=()
  on_fetched "$1"
  found=$(timeout 600 "${runner[@]}" "$build/tools/info" --device vulkan 2>&1) || true
  if [[ $found == vulkan:0* && $found != *"NOT USABLE"* ]]; then return 0; fi
  why="it has no device that works here: $(tail -n 1 <<< "$found")"
  return 1
}
