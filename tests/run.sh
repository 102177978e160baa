# The commands test, sanitize and fuzz. Sourced by `rewind`.

# fuzz [MINUTES]: with libFuzzer where clang has it, else with the tests' own driver. What shows a fault
# stays in the current folder.
fuzz() {
  local minutes=${1:-10} corpus=$build/fuzz-corpus build=$build name seconds faults=0 clang=
  [[ $minutes =~ ^[1-9][0-9]{0,5}$ ]] || die "fuzz how long? ./rewind fuzz [MINUTES]"
  need "${packages[@]}"
  sanitized compile tests/fuzz/fuzz
  build+=/sanitized
  local names=() run=()
  mapfile -t names < <("$build/tests/fuzz/fuzz" --corpus "$corpus/seeds")
  ((${#names[@]})) || die "there are no targets to fuzz"
  seconds=$((minutes * 60 / ${#names[@]}))
  ((seconds)) || seconds=1
  if command -v clang++ > /dev/null &&
    quietly clang++ -fsanitize=fuzzer,address -x c++ -o /dev/null - <<< \
      'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, decltype(sizeof 0)) { return 0; }'; then
    clang=yes build=${build%/sanitized}/libfuzzer
    local setup_options=(-Dlibfuzzer=true -Ddefault_library=static -Db_sanitize=address -Db_lundef=false)
    CXX=clang++ compile "${names[@]/#/tests/fuzz/fuzz_}"
  fi
  for name in "${names[@]}"; do
    if [[ -n $clang ]]; then
      mkdir -p "$corpus/$name"
      run=("$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -max_len=200000 -timeout=20
        -malloc_limit_mb=256 -detect_leaks=0 -artifact_prefix="fuzz-$name-" "$corpus/$name" "$corpus/seeds/$name")
    else
      run=("$build/tests/fuzz/fuzz" "$name" --seconds "$seconds" --seed "$RANDOM")
    fi
    if quietly "${run[@]}"; then
      say "$name: $(grep -a inputs "$log" || grep -a '^Done' "$log")"
    else
      say "$name: a fault:"$'\n'"$(tail -n 60 "$log")"
      faults=$((faults + 1))
    fi
  done
  echo "${#names[@]} readers, $faults with faults"
  ((faults == 0))
}

# Tests run side by side, one per core; each writes its counts and prints its line when it is done.
results=

# parallel COMMAND...: starts it as soon as a core is free.
parallel() {
  [[ -n $results ]] || results=$(mktemp -d 2> /dev/null) || results=$(TMPDIR=/tmp mktemp -d)
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
  (
    trap - EXIT
    log=$results/$BASHPID.log
    echo "0 1" > "$results/$BASHPID.counts" # until it says otherwise
    "$@"
  ) &
}

# suite NAME [doctest options or VARIABLE=VALUE...]: runs the test program, on the driver that `runner` says.
suite() {
  local name=$1 variables=() options=() argument status=0 start=$SECONDS summary good=0 bad=1
  shift
  for argument in "$@"; do
    if [[ $argument == -* ]]; then options+=("$argument"); else variables+=("$argument"); fi
  done
  quietly env "${variables[@]}" timeout 2700 "${runner[@]}" "$build/tests/rewind_tests" "${options[@]}" || status=$?
  summary=$(grep -a 'test cases:' "$log" || true)
  if [[ $summary =~ \|\ *([0-9]+)\ passed\ \|\ *([0-9]+)\ failed ]]; then
    good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
  fi
  # A crash, a complaint of the validation layers, and a filter that matches nothing are failures.
  if ((bad == 0)) && { ((status || good == 0)) || grep -aq '^validation:' "$log"; }; then bad=1; fi
  report "$name" "$good passed, $bad failed" "$start" "$good" "$bad"
}

# part NAME COMMAND...: one test.
part() {
  local name=$1 start=$SECONDS
  shift
  if quietly "$@"; then report "$name" passed "$start" 1 0; else report "$name" failed "$start" 0 1; fi
}

# script NAME: a test of tests/meson.build that is not the test program.
script() { part "$1" meson test -C "$build" --no-rebuild --logbase "testlog-$1" --print-errorlogs "$1"; }

# report NAME RESULT START PASSED FAILED: a line, and the output where something failed.
report() {
  local text
  text=$(printf '%-34s %s (%d s)' "$1" "$2" $((SECONDS - $3)))
  if (($5)); then text+=$'\n'$(head -n 300 "$log" | sed 's/^/    /'); fi
  echo "$text"
  echo "$4 $5" > "${log%.log}.counts"
}

# skip NAME WHY
skip() {
  echo "$1: skipped, $2"
  echo "0 0 1" > "$results/$BASHPID.counts"
}

# finish: waits for all, and prints the table of drivers and the sum.
finish() {
  local skipped=0 passed=0 failed=0 good bad without file driver version result seconds
  wait
  if compgen -G "$results/*.row" > /dev/null; then
    printf '%-20s %-46s %-24s %s\n' driver version result seconds
    sort "$results"/*.row | while IFS='|' read -r driver version result seconds; do
      printf '%-20s %-46s %-24s %s\n' "$driver" "$version" "$result" "$seconds"
    done
  fi
  for file in "$results"/*.counts; do
    read -r good bad without < "$file"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + ${without:-0}))
  done
  echo "$((SECONDS / 60)) min $((SECONDS % 60)) s in all"
  local line="$passed passed, $failed failed"
  if ((skipped)); then line+=", $skipped skipped"; fi
  echo "$line"
  ((failed == 0 && passed > 0))
}

run_tests() {
  need "${packages[@]}" "${test_packages[@]}"
  if [[ -n ${CI:-} ]]; then need "${ci_packages[@]}"; fi
  compile all meson-test-prereq
  local name
  # The longest ones first. Tests that need no Vulkan run once, and of whole programs not on other drivers.
  parallel on_driver swiftshader
  parallel suite 'tests' -tse=host
  # Compiling is most of their time; these two are not about lavapipe's compiler.
  parallel suite 'tests, validation layers' -tse=host REWIND_VALIDATE=1 REWIND_CHECK_HAZARDS=1 GALLIVM_PERF=nopt
  parallel suite 'tests, kernels of GPUs' -tse=host,programs REWIND_LIKE_GPU=1 REWIND_NO_UNIFIED_MEMORY=1 \
    REWIND_NO_HALF_PACKING=1 REWIND_MAX_DISPATCH_US=100 GALLIVM_PERF=nopt
  parallel suite 'tests without a device' -ts=host
  for name in $(meson test -C "$build" --no-rebuild --list | grep -vx rewind_tests); do
    parallel script "$name"
  done
  finish
}

# A debug build with what finds memory faults and undefined behaviour.
sanitized() {
  local build=$build/sanitized
  local setup_options=(-Ddebug=true -Doptimization=g -Ddefault_library=static -Db_lundef=false -Db_sanitize=address,undefined
    "-Dcpp_args=-D_GLIBCXX_ASSERTIONS -g1 -fno-sanitize-recover=undefined")
  "$@"
}
compile_sanitized() { sanitized compile tests/rewind_tests apps/mnist tests/fuzz/fuzz; }
run_sanitized() {
  # Drivers keep memory to the end of the process, which is no leak of ours.
  local variables=(ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1)
  # Searches over random programs take most of the time, and no memory that others do not.
  sanitized parallel suite 'tests, address and undefined' -ts=host "${variables[@]}" \
    '-tce=*random programs*,*plans and eviction*,plan: loading*,*largest batch*,*grow*with the logarithm*,dry run: steady*,recompute search*'
  parallel part 'fuzz, address and undefined' "$build/sanitized/tests/fuzz/fuzz" --artifacts "$build/sanitized"
  parallel part 'training, address and undefined' env "${variables[@]}" REWIND_CACHE="$build/sanitized/cache" \
    "$build/sanitized/apps/mnist" --device cpu --images 40 --epochs 1 --accumulate 4 --checkpoint block --quiet
}

# The same as in CI, and one that finds races.
sanitize() {
  need "${packages[@]}"
  compile_sanitized
  local plain=$build build=$build/threads
  local setup_options=(-Dbuildtype=debugoptimized -Ddefault_library=static -Db_lundef=false -Db_sanitize=thread)
  compile tests/rewind_tests
  # Without it the sanitizer does not find its addresses on kernels that spread them widely.
  parallel suite 'threads, races' '-tc=threads*' TSAN_OPTIONS=halt_on_error=1
  build=$plain
  run_sanitized
  finish
}
