# The tests on other Vulkan drivers. Sourced by `rewind`; tools/drivers.sh fetches drivers.

# GPUs that need not be there: Mesa's drivers for them, on Mesa's stand-ins for the hardware. All is compiled by the
# driver's true compiler for the true limits, commands are accepted and do nothing.
stand_ins=(radv:vega10 radv:navi21 radv:navi31 radv:gfx1201 nvk:162 nvk:172 honeykrisp:m1 turnip:630 turnip:740 turnip:750)

# The Vulkan drivers that are installed: "NAME FILE" in lines.
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
  local manifest shim folder=$drivers/$newest device=${1#*:} variables=(REWIND_NO_SELF_CHECK=1)
  case $1 in
    radv:*) manifest=radeon shim=amdgpu variables+=("AMDGPU_GPU_ID=$device") ;;
    nvk:*) manifest=nouveau shim=nouveau variables+=("NOUVEAU_CHIPSET=$device") ;;
    turnip:*) manifest=freedreno shim=freedreno variables+=("FD_GPU_ID=$device") ;;
    honeykrisp:*) manifest=asahi shim=asahi ;;
  esac
  # Nothing that was compiled before, by us or by Mesa.
  variables+=(MESA_SHADER_CACHE_DISABLE=true REWIND_CACHE="$results/$BASHPID")
  on "$folder/$manifest.json" "${variables[@]}" "$folder/ld.so" --library-path "$folder/lib" \
    --preload "$folder/lib/lib${shim}_noop_drm_shim.so"
}

tried= # what is not fetched again for each of those that need it

# missing NAME: why there is no such driver here, after an attempt to fetch it; or nothing.
missing() {
  local name=$1
  if [[ $name == *:* ]]; then name=$newest; fi
  case $name in
    "$fast" | "$newest")
      if [[ -n $drivers && -d $drivers/$name ]]; then
        return
      elif [[ -n $(cannot_fetch) ]]; then
        cannot_fetch
      elif [[ $name == "$fast" ]] && ! is_debian_12; then
        echo "it is for Debian 12"
      elif [[ " $tried " == *" $name "* ]] || ! fetch "$name"; then
        cat "$drivers/$name.why" 2> /dev/null || echo "it could not be fetched"
      fi ;;
    swiftshader)
      if [[ ! -f $swiftshader ]]; then echo "no $swiftshader (Debian: apt install chromium-common)"; fi ;;
  esac
}

# on_driver NAME: what can be tested on that driver, and a row of the table.
on_driver() {
  local name=$1 file why start=$SECONDS version result good=0 bad=0 runner=() without=()
  why=$(missing "$name")
  if [[ -n $why ]]; then
    skip "tests, $name" "$why"
    echo "$name|-|skipped|-" > "$results/$BASHPID.row"
    return
  fi
  case $name in
    *:*) on_stand_in "$name" ;;
    "$fast" | "$newest") on_fetched "$drivers/$name" ;;
    *)
      file=$(installed_drivers | sed -n "s/^$name //p" | head -n 1)
      on "$file"
      # Its compiler takes minutes for what tells nothing of a driver, or of a kernel that was not called before.
      if [[ $name == swiftshader ]]; then
        runner+=(REWIND_TESTS_BRIEF=1)
        without=('-tce=*a lost device*,pacing: kernels in parts*,resnet*,recompute: on vulkan')
      fi ;;
  esac
  if ! quietly timeout 900 "${runner[@]}" "$build/tools/info" && [[ ${2:-} == all ]]; then
    skip "tests, $name" "it has no device here"
    return
  fi
  version=$(sed -n 's/^  driver *//p' "$log" | head -n 1)
  if [[ $name == *:* ]]; then steps_on_stand_in "$name"; else suite "tests, $name" -tse=host,programs "${without[@]}"; fi
  read -r good bad < "$results/$BASHPID.counts"
  result="$good passed, $bad failed"
  if [[ $name == *:* ]]; then result+=" *"; fi
  echo "$name|${version:-no device}|$result|$((SECONDS - start))" > "$results/$BASHPID.row"
}

# The committed table of a stand-in's pipelines.
pipelines_of() {
  local device=${1#*:}
  case $1 in
    nvk:*) device=nv$device ;;
    turnip:*) device=fd$device ;;
  esac
  echo "$root/benchmarks/pipelines/$device.json"
}

# steps_on_stand_in NAME: a step of each program, and every pipeline that may be asked for, against its table.
steps_on_stand_in() {
  local start=$SECONDS good=0 bad=0 all=$log.all found=$results/$BASHPID.pipelines.json
  : > "$all"
  check_step() {
    if quietly timeout 900 "${@:2}"; then
      good=$((good + 1))
    else
      bad=$((bad + 1)) && { echo "$1:" && tail -n 40 "$log"; } >> "$all"
    fi
  }
  check_step resnet "${runner[@]}" "$build/apps/resnet" --steps 1 --dtype f16 --quiet
  check_step bert "${runner[@]}" "$build/apps/bert" --steps 1 --dtype f16 --save "$results/$BASHPID/bert" --quiet
  "${runner[@]}" "$build/tools/info" --pipelines --json --count rtz_f16 > "$found" 2> "$log" || cat "$log" >> "$all"
  check_step pipelines "$root/tests/check_pipelines.py" "$found" "$(pipelines_of "$1")"
  mv "$all" "$log"
  report "steps, $1" "$good passed, $bad failed: compiled, nothing is computed there" "$start" "$good" "$bad"
}

# with_driver NAME|all: the tests that need Vulkan on one driver, installed or fetched, or on each.
with_driver() {
  local wanted=$1 name names
  names=$(installed_drivers | cut -d ' ' -f 1)
  names=$(printf '%s\n' "$names" "$fast" "$newest" "${stand_ins[@]}" | sed '/^$/d')
  if [[ $wanted != all ]] && ! grep -Fxq -e "$wanted" <<< "$names"; then
    die "there is no driver '$wanted', there are: $(tr '\n' ' ' <<< "$names")all"
  fi
  need "${packages[@]}"
  compile tests/rewind_tests tools/info apps/resnet apps/bert
  if [[ $wanted == all || $wanted == *:* ]]; then
    missing "$newest" > /dev/null
    tried=$newest
  fi
  for name in $names; do
    if [[ $wanted == all || $wanted == "$name" ]]; then parallel on_driver "$name" "$wanted"; fi
  done
  local status=0
  finish || status=$?
  if [[ $wanted == all || $wanted == *:* ]]; then
    echo "* a GPU that is not there: a step of resnet and bert in f16, and every pipeline compiled. Nothing is computed."
  fi
  return $status
}
