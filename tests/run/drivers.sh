# The tests on other Vulkan drivers. Sourced by `rewind`; fetch.sh fetches drivers.

# GPUs that need not be present: Mesa's drivers for them, on stand-ins for the hardware, Mesa's or, for Intel, ours
# (tests/stand_ins). The driver's real compiler compiles everything for the real limits; commands are accepted and do
# nothing.
stand_ins=(radv:vega10 radv:navi21 radv:navi31 radv:gfx1201 nvk:162 nvk:172 honeykrisp:m1 turnip:630 turnip:740 turnip:750
  anv:iris-xe anv:arc-a770 anv:arc-b580)

# Prints the installed Vulkan drivers, as lines "NAME FILE".
installed_drivers() {
  local file name
  for file in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
    if [[ ! -f $file ]]; then continue; fi
    name=${file##*/} name=${name%.json}
    name=${name%.x86_64} name=${name%_icd}
    echo "${name/#lvp/lavapipe} $file"
  done
  if [[ -f $swiftshader ]]; then echo "swiftshader $swiftshader"; fi
}

# on_stand_in NAME: sets `runner`.
on_stand_in() {
  local manifest shim library folder=$drivers/$newest device=${1#*:} variables=(REWIND_WITHOUT=self-check)
  case $1 in
    radv:*) manifest=radeon shim=amdgpu variables+=("AMDGPU_GPU_ID=$device") ;;
    nvk:*) manifest=nouveau shim=nouveau variables+=("NOUVEAU_CHIPSET=$device") ;;
    turnip:*) manifest=freedreno shim=freedreno variables+=("FD_GPU_ID=$device") ;;
    honeykrisp:*) manifest=asahi shim=asahi ;;
    anv:*) manifest=intel shim= variables+=("INTEL_GPU=$device") ;;
  esac
  library=$folder/lib/lib${shim}_noop_drm_shim.so
  if [[ -z $shim ]]; then
    library=$results/intel_gpu.so
    quietly c++ -std=c++20 -shared -fPIC -Wall -Werror -I"$root" $(pkg-config --cflags libdrm) "$root"/tests/stand_ins/*.cpp \
      -o "$library" || die "the stand-in for Intel's GPUs was not built:"$'\n'"$(cat "$log")"
  fi
  # Earlier compiled code, ours or Mesa's, must not be used.
  variables+=(MESA_SHADER_CACHE_DISABLE=true REWIND_CACHE="$results/${1//:/-}")
  on "$folder/$manifest.json" "${variables[@]}" "$folder/ld.so" --library-path "$folder/lib" \
    --preload "$library"
}

tried= # what is not fetched again for each of those that need it

# missing NAME: prints why there is no such driver here, after an attempt to fetch it, or nothing.
missing() {
  local name=$1
  if [[ $name == anv:* ]] && ! pkg-config --exists libdrm; then
    echo "its stand-in takes headers of Linux's drivers (Debian: apt install libdrm-dev)"
    return
  fi
  if [[ $name == *:* ]]; then name=$newest; fi
  case $name in
    "$fast" | "$newest")
      if [[ -d $drivers/$name ]]; then
        return
      elif [[ -n $(cannot_fetch) ]]; then
        cannot_fetch
      elif [[ $name == "$fast" ]] && ! is_debian_12; then
        echo "it is for Debian 12"
      elif [[ " $tried " == *" $name "* ]]; then
        echo "it could not be fetched"
      elif ! fetch "$name"; then
        echo "$why"
      fi ;;
    swiftshader)
      if [[ ! -f $swiftshader ]]; then echo "no $swiftshader (Debian: apt install chromium-common)"; fi ;;
  esac
}

# add_driver NAME [OPTIONS of `cases`]: adds the tests that can run on that driver; for a real one, the cases that OPTIONS
# select. A driver for which the machine has no device is skipped.
add_driver() {
  local name=$1 file why version runner=() log=$results/info without=()
  shift
  why=$(missing "$name")
  if [[ -n $why ]]; then
    skip "$name" "$why"
    return
  fi
  case $name in
    *:*) on_stand_in "$name" ;;
    "$fast" | "$newest") on_fetched "$drivers/$name" ;;
    *)
      file=$(installed_drivers | sed -n "s/^$name //p" | head -n 1)
      on "$file"
      # Its compiler takes minutes for tests that show nothing new about a driver or a kernel.
      if [[ $name == swiftshader ]]; then
        runner+=(REWIND_TESTS_BRIEF=1)
        without=('-tce=*a lost device*,pacing: kernels in parts*,resnet*,recompute: on vulkan')
      fi ;;
  esac
  if ! quietly timeout 900 "${runner[@]}" "$build/tools/info" --device vulkan; then
    skip "$name" "it has no device here that can be used: $(tail -n 1 "$log")"
    return
  fi
  version=$(sed -n 's/^  driver *//p' "$log" | head -n 1)
  if [[ $name == *:* ]]; then
    steps_on_stand_in "$name"
  else
    cases "$name ($version)" -tse=host,programs "${without[@]}" "$@"
  fi
}

# One driver besides the system's, another one in each commit, runs the kernels that changed lately, or all kernels if
# their common part changed.
driver_of_commit() {
  local all=(swiftshader "$fast" "$newest") commits changed name
  commits=$(git -C "$root" rev-list --count HEAD 2> /dev/null || echo 0)
  name=${all[commits % ${#all[@]}]}
  changed=$(git -C "$root" diff --name-only "HEAD~$((commits > 10 ? 10 : commits - 1))" -- shaders backends/vulkan 2> /dev/null || true)
  if ((commits < 2)) || [[ $changed == *.glsl* || $changed == *.py* || $changed == *backends/vulkan* ]]; then
    changed='-tc=kernels*'
  elif [[ -n $changed ]]; then
    changed=$(sed 's|.*/||; s|[_.].*||' <<< "$changed" | sort -u | sed 's/.*/kernels*&*/' | paste -sd ,)
    changed="-tc=$changed,kernels: copy"
  else
    changed='-tc=kernels: copy*,kernels: unary*'
  fi
  say "the other driver of this commit is $name, for ${changed#-tc=}"
  add_driver "$name" "$changed" GALLIVM_PERF=nopt
}

# Prints the name that a stand-in has in the committed table of pipelines.
pipelines_of() {
  local device=${1#*:}
  case $1 in
    nvk:*) device=nv$device ;;
    turnip:*) device=fd$device ;;
  esac
  echo "$device"
}

# steps_on_stand_in NAME: runs a step of each program, and compares every pipeline that may be asked for with its table.
# Nothing is computed, since there is no GPU. The programs come to their end and say so.
steps_on_stand_in() {
  local found=$results/${1//:/-}.json count program
  for program in resnet bert; do
    part "$1: $program" bash -c 'said=$("$@" 2>&1) || [[ $said == *"it computes nothing"* ]] || { echo "$said"; false; }' \
      bash "${runner[@]}" "$build/apps/$program" --steps 1 --dtype f16 --quiet
  done
  printf -v count '%q ' "${runner[@]}" "$build/tools/info" --pipelines --json --count rtz_f16
  part "$1: pipelines" bash -c "$count > $found && $root/tests/checks/check_pipelines.py $found $root/benchmarks/pipelines/tables.json $(pipelines_of "$1")"
}

# Prints the names of all drivers, in lines.
known_drivers() {
  installed_drivers | cut -d ' ' -f 1
  printf '%s\n' "$fast" "$newest" "${stand_ins[@]}"
}

# all_drivers [NAME]: adds all drivers except the one of that name.
all_drivers() {
  local name
  missing "$newest" > /dev/null
  tried=$newest
  for name in $(known_drivers); do
    if [[ $name != "${1:-}" ]]; then add_driver "$name"; fi
  done
}

# with_driver NAME|all: runs the tests that need Vulkan on one driver, installed or fetched, or on each.
with_driver() {
  local wanted=$1 names
  names=$(known_drivers)
  if [[ $wanted != all ]] && ! grep -Fxq -e "$wanted" <<< "$names"; then
    die "there is no driver '$wanted', there are: $(tr '\n' ' ' <<< "$names")all"
  fi
  need "${packages[@]}"
  compile tests/rewind_tests tools/info apps/resnet apps/bert
  if [[ $wanted == all ]]; then
    all_drivers
  else
    add_driver "$wanted"
  fi
  finish
}
