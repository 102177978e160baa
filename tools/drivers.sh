# Vulkan drivers, installed and fetched. Sourced by `rewind`.
#
# Fetched are Debian's packages, unpacked into the folder $drivers. A driver there is complete or not there: it is
# made in .new-NAME, tried, and renamed.

os_release=${REWIND_OS_RELEASE:-/etc/os-release} # tests give another
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
swiftshader=/usr/lib/chromium/vk_swiftshader_icd.json

# The faster CPU driver of Debian 12, and the newest one, which brings its own C library and is for tests.
fast=lavapipe-backports newest=lavapipe-forky

# Beside what the programs keep, and by the same rule: core/files/cache.h.
cache=
if [[ -n ${REWIND_CACHE:-} ]]; then
  cache=$(realpath -ms "$REWIND_CACHE")
elif [[ ${XDG_CACHE_HOME:-} == /* ]]; then
  cache=$XDG_CACHE_HOME/rewind
elif [[ ${HOME:-} == /* ]]; then
  cache=$HOME/.cache/rewind
fi
drivers=${cache:+$cache/drivers}

# not_ours FOLDER...: why one of them, where it is there, is not this user's alone; or nothing.
not_ours() {
  local folder
  for folder; do
    if [[ -L $folder && ! $(stat -c %u "$folder") =~ ^(0|$EUID)$ ]]; then
      echo "$folder must be no link of another user's"
    elif [[ -e $folder && ! -O $folder ]]; then
      echo "$folder must belong to this user"
    elif [[ -n $(find -H "$folder" -maxdepth 0 -perm /022 2> /dev/null) ]]; then
      echo "others must not be able to write to $folder: chmod go-w $folder"
    else
      continue
    fi
    return
  done
}
no_drivers="there must be a folder for it: set HOME, or REWIND_CACHE to a folder"
if [[ -n $drivers ]]; then no_drivers=$(not_ours "$cache" "$drivers"); fi
if [[ -n $no_drivers ]]; then drivers=; fi

# of_system NAME: a value of os-release.
of_system() { (unset "$1"; . "$os_release" 2> /dev/null && echo "${!1:-}"); }

is_debian_12() { [[ $(of_system ID) == debian && $(of_system VERSION_CODENAME) == bookworm ]]; }

# Says why nothing can be fetched here, or nothing.
cannot_fetch() {
  local program
  if [[ -n ${REWIND_NO_INSTALL:-} ]]; then
    echo "REWIND_NO_INSTALL is set, which forbids it"
  elif [[ -z $drivers ]]; then
    echo "$no_drivers"
  else
    for program in apt-get dpkg-deb flock ldd; do
      if ! command -v "$program" > /dev/null; then
        echo "it takes $program of a Debian system, which is not here"
        return
      fi
    done
    if [[ ! -f $keyring ]]; then echo "$keyring must be there to check signatures: apt install debian-archive-keyring"; fi
  fi
}

# ---- fetching ------------------------------------------------------------------------------------

# The functions up to `fetch` are its parts: they work in the folder $work, and where they fail $why says it.

# unpack STATUS SUITES PACKAGE...: the packages of the last suite, and what they need beyond what the file STATUS
# tells to be installed, into $work/root. apt checks all signatures. It has lists of its own: the system stays as
# it is, and nobody needs to be root.
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
    # The lock would be that of the system's packages, which stay; we have our own. And where root runs this, apt's
    # own user has no way into root's cache folder.
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

# has_room MIB: whether so much fits into $work. apt waits forever where its lists do not fit.
has_room() {
  local free
  free=$(df -Pm "$work" | awk 'END {print $4}')
  if ((free >= $1)); then return 0; fi
  why="it takes $1 MiB in $drivers for a while, and there are $free MiB; make room, or name another folder with REWIND_CACHE"
  return 1
}

# fetch NAME: 0 when the driver is there, else 1 after a message, which stays in $drivers/NAME.why.
fetch() (
  umask 077
  name=$1 work=$drivers/.new-$1 why=
  mkdir -p "$drivers" 2> /dev/null && { : >> "$drivers/$name.lock"; } 2> /dev/null || {
    say "$name is not fetched: $drivers must be a folder that can be written; REWIND_CACHE may name another"
    return 1
  }
  exec 9>> "$drivers/$name.lock"
  if ! flock -n 9; then
    say "waiting for another process that fetches $name"
    flock 9
    [[ -d $drivers/$name ]]
    return
  fi
  if [[ -d $drivers/$name ]]; then return 0; fi
  rm -rf "$work" # of a process that was killed
  trap 'rm -rf "$work"' EXIT
  say "fetching the Vulkan driver $name, signed by Debian, into $drivers; nothing is installed." \
    "REWIND_NO_INSTALL=1 forbids it"
  if mkdir "$work" && "make_$name" && works "$work/made" && mv "$work/made" "$drivers/$name"; then
    rm -f "$drivers/$name.why"
    return 0
  fi
  why=${why:-$work could not be written, is the disk full?}
  # Beside the message, where even this does not fit, nothing is lost.
  { echo "$why" > "$work/why" && mv "$work/why" "$drivers/$name.why"; } 2> /dev/null || true
  say "$name was not fetched: $why"
  return 1
)

# ---- running on a driver -------------------------------------------------------------------------

# on FILE VARIABLE=VALUE... [-- COMMAND...]: sets `runner`, what comes before a program that is to run on the driver
# of the manifest FILE.
runner=()
on() { runner=(env VK_DRIVER_FILES="$1" VK_ICD_FILENAMES="$1" "${@:2}"); }

# on_fetched FOLDER: the same for what `fetch` made.
on_fetched() {
  if [[ -f $1/ld.so ]]; then
    on "$1/icd.json" "$1/ld.so" --library-path "$1/lib"
  else
    on "$1/icd.json" LD_LIBRARY_PATH="$1/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  fi
}

# What a self-check that has not come to its end has kept.
checks_so_far() { cat "$cache"/self-check-*-checks 2> /dev/null | cksum; }

# works FOLDER: whether the driver in it has a device that computes right. `info` opens it, which checks it.
works() {
  local found proved runner=()
  on_fetched "$1"
  # On a busy machine the check takes long, but it keeps what it has proved.
  until found=$(timeout 300 "${runner[@]}" "$build/tools/info" 2>&1); do
    if (($? != 124)) || [[ $(checks_so_far) == "${proved:-none}" ]]; then break; fi
    proved=$(checks_so_far)
  done
  if [[ $found == vulkan:0* && $found != *"NOT USABLE"* ]]; then return 0; fi
  why="it has no device that works here: $(tail -n 1 <<< "$found")"
  return 1
}

# has_gpu TEXT: whether what `info` wrote shows a device that is no CPU and can be used.
has_gpu() { awk '/^vulkan:/ {gpu = !/, CPU$/} /^  in use/ && gpu {found = 1} END {exit !found}' <<< "$1"; }

is_driver_given() { [[ -n ${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}${VK_ADD_DRIVER_FILES:-} || ${REWIND_DEVICE:-} == *uuid=* ]]; }

# choose_driver [fetch]: lets the programs that are started next run on the fast CPU driver where there is no GPU.
# It is fetched where it may be, and was not before.
choose_driver() {
  local found why=
  if is_driver_given; then return; fi
  if [[ -z $drivers ]]; then
    if [[ -n $cache ]]; then say "going on with the system's driver: $no_drivers"; fi
    return
  fi
  if [[ ! -d $drivers/$fast ]]; then
    # Not again after `driver --remove`, nor for a day after a failure.
    if [[ ${1:-} != fetch || -n $(cannot_fetch) || -f $drivers/$fast.removed ||
      -n $(find "$drivers/$fast.why" -mtime -1 2> /dev/null) ]] || ! is_debian_12; then
      return
    fi
  fi
  compile tools/info
  found=$("$build/tools/info" 2> /dev/null) || true
  if has_gpu "$found"; then return; fi
  if [[ ! -d $drivers/$fast ]] && ! fetch "$fast"; then
    say "going on with the system's driver, and trying again tomorrow or with ./rewind driver"
    return
  fi
  if ! works "$drivers/$fast"; then
    say "going on without $drivers/$fast: $why; ./rewind driver --remove takes it away"
    return
  fi
  on_fetched "$drivers/$fast"
  export "${runner[@]:1}"
}

# driver [--remove]: fetches the fast CPU driver where there is no GPU, and shows what is in use.
driver() {
  local found why= name
  if [[ $# == 1 && $1 == --remove ]]; then
    if [[ -z $drivers ]]; then die "$no_drivers"; fi
    mkdir -p "$drivers" && : > "$drivers/$fast.removed" || die "$drivers must be a folder that can be written"
    for name in $fast $newest; do
      (
        exec 9>> "$drivers/$name.lock"
        flock 9 # whoever fetches comes to the end first
        if [[ -d $drivers/$name ]]; then mv -T "$drivers/$name" "$drivers/.new-$name"; fi
        rm -rf "$drivers/.new-$name" "$drivers/$name.why"
      ) || die "$drivers/$name could not be removed"
    done
    say "there is no fetched driver in $drivers any more; ./rewind driver fetches it again"
    return
  fi
  (($# == 0)) || die "driver how? ./rewind driver [--remove]"
  need "${packages[@]}"
  compile tools/info
  found=$("$build/tools/info" 2>&1) || true
  if is_driver_given; then
    say "in use is the driver that the environment names (VK_DRIVER_FILES, VK_ICD_FILENAMES, REWIND_DEVICE)"
  elif has_gpu "$found"; then
    say "in use are the system's drivers: there is a GPU"
  else
    if [[ -d $drivers/$fast ]]; then
      rm -f "$drivers/$fast.removed"
    elif ! is_debian_12; then
      say "a driver is fetched on Debian 12, not on ${os_release}'s $(of_system PRETTY_NAME). Please install your" \
        "system's newest lavapipe, of Mesa 25 or later: mesa-vulkan-drivers (Debian, Ubuntu, Fedora), vulkan-swrast (Arch)"
    elif why=$(cannot_fetch) && [[ -n $why ]]; then
      say "$fast is not fetched: $why"
    elif fetch "$fast"; then
      rm -f "$drivers/$fast.removed"
    fi
    choose_driver
    if is_driver_given; then
      say "in use is $drivers/$fast; ./rewind driver --remove takes it away"
      found=$("$build/tools/info" 2>&1) || true
    else
      say "in use is the system's driver"
    fi
  fi
  echo "$found"
}
