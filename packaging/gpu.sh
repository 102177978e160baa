#!/bin/sh
# Writes one report about this machine's Vulkan device: which parts of Rewind work there and how fast. It needs a POSIX
# shell, awk and timeout beside the programs, which lie here (in a bundle) or in the build folder that --programs names.
set -u
usage() {
  cat << 'TEXT'
Usage: gpu [OPTIONS]

Checks and measures Rewind on a Vulkan device in at most 25 minutes (about 2 with --quick), and writes
rewind-gpu.md and rewind-gpu.json: self-check and tests, rates of kernels, steps of ResNet and BERT, recomputation in
time, predicted memory against the device's, PyTorch beside it where python3 has it. A part that fails or takes too
long is reported, and the others go on. Both files are up to date after every part.

  --device NAME     an index, a part of the name or uuid=..., else the best device
  --output DIR      where the files go, else the current folder
  --minutes N       for all parts together; what there is no time for is left out
  --only PART,...   these parts; the first one, devices, always runs
  --skip PART,...   without these
  --list            the parts, in order, with the seconds that each has at most
  --quick           every part, but little of each
TEXT
}

# The parts that find most faults come first.
parts() {
  cat << 'TEXT'
devices 120 devices and self-check
kernel_tests 240 tests of kernels
resnet_f32 60 steps of ResNet in f32
resnet_f16 60 steps of ResNet in f16
bert_f32 60 steps of BERT in f32
bert_f16 60 steps of BERT in f16
large 150 large products, convolutions and steps
recompute 90 recomputation in time
profile 90 kernels that take longest
tune 90 tuning
kernels 150 rates of kernels
memory 150 predicted memory against the device
plain_steps 90 plain steps
ops 30 host time of ops
pytorch 180 PyTorch
tests 480 all tests
TEXT
}

say() { echo "gpu: $*" >&2; }
die() { say "$@"; exit 1; }

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
programs= device=${REWIND_DEVICE:-} output=. quick=false minutes=25 only= skip=
while [ $# -gt 0 ]; do
  case $1 in
    --device | --output | --programs | --minutes | --only | --skip)
      [ $# -ge 2 ] && [ -n "$2" ] || die "$1 must be followed by a value; --help lists the options"
      case $1 in
        --device) device=${2#vulkan:} ;;
        --output) output=$2 ;;
        --programs) programs=$2 ;;
        --minutes) minutes=$2 ;;
        --only) only=$2 ;;
        --skip) skip=$2 ;;
      esac
      shift 2 ;;
    --quick) quick=true; shift ;;
    --list) parts; exit ;;
    -h | --help) usage; exit ;;
    *) die "no such option: $1; --help lists them" ;;
  esac
done
case $minutes in
  '' | *[!0-9]* | 0*) die "--minutes must be a whole number of minutes, got '$minutes'" ;;
esac
for name in $(echo "$only,$skip" | tr , ' '); do
  parts | grep -q "^$name " || die "there is no part '$name'; --list lists them"
done
for tool in awk timeout tr mktemp; do
  command -v "$tool" > /dev/null || die "$tool must be installed, it is not"
done
mkdir -p "$output" && [ -d "$output" ] && [ -w "$output" ] ||
  die "$output must be a folder that can be written; name another with --output"
# These are not in that folder, from which perhaps only few files are brought back.
work=$(mktemp -d) || die "a temporary folder must be possible in ${TMPDIR:-/tmp}"
trap 'rm -rf "$work"' EXIT
trap 'say "stopped; what was done is in $output/rewind-gpu.md"; exit 130' INT TERM HUP
export REWIND_CACHE="$work/cache"  # nothing compiled or checked before
mkdir -m 700 "$REWIND_CACHE"
export REWIND_DEVICE="${device:-vulkan}"  # what all programs mean by "auto" and "vulkan"

# program NAME: prints its path.
program() {
  for path in "$here/$1" "$programs/tools/$1" "$programs/tests/$1" "$programs/benchmarks/$1" "$programs/apps/$1"; do
    if [ -f "$path" ] && [ -x "$path" ]; then
      echo "$path"
      return
    fi
  done
  echo "$here/$1"  # whose absence the part reports
}

# ---- the report ----------------------------------------------------------------------------------

# Turns texts into JSON strings. Bytes other than ASCII are left out, since a text may end in the middle of a letter.
tab=$(printf '\t')
quoted() {
  LC_ALL=C tr -cd '\11\12\40-\176' | sed "s/\\\\/\\\\\\\\/g; s/\"/\\\\\"/g; s/$tab/\\\\t/g" |
    awk 'BEGIN {printf "\""} {printf "%s\\n", $0} END {printf "\""}'
}

# assemble: replaces both files by the parts so far.
assemble() {
  {
    printf '{\n"made": "%s",\n"quick": %s,\n"machine": ' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$quick"
    quoted < "$work/machine"
    printf ',\n"parts": ['
    separator=
    for json in "$work"/*.part; do
      printf '%s\n' "$separator"
      cat "$json"
      separator=,
    done
    printf ']\n}\n'
  } > "$work/report.json" && mv "$work/report.json" "$output/rewind-gpu.json" || say "$output cannot be written"
  {
    printf '# Rewind on %s\n\n' "$(sed -n 's/^vulkan:[0-9]*  //p' "$work/devices.text" 2> /dev/null | head -n 1)"
    sed 's/^/    /' "$work/machine"
    printf '\n| part | result | seconds |\n|---|---|---:|\n'
    cat "$work/table"
    cat "$work"/*.text.md
  } > "$work/report.md" && mv "$work/report.md" "$output/rewind-gpu.md" || say "$output cannot be written"
}

count=0 failed=0 skipped=0 last=$(($(date +%s) + 60 * minutes))

# part FUNCTION SECONDS NAME: the output of FUNCTION is the part's text; a JSON document that it leaves in $result is its
# result. Every program that it calls by `run` is stopped when SECONDS are over.
part() {
  seconds=$2 name=$3 begin=$(date +%s) status=0
  count=$((count + 1))
  end=$((begin + seconds)) result=$work/result.json text=$work/$1.text
  if [ "$end" -gt "$last" ]; then end=$last; fi
  rm -f "$result"
  say "$name"
  if [ "$begin" -lt "$last" ]; then
    "$1" > "$text" 2>&1 < /dev/null || status=$?
  else
    echo "no time was left of $minutes minutes" > "$text"
    status=77
  fi
  took=$(($(date +%s) - begin))
  case $status in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    124 | 137) verdict="stopped after $((end - begin)) s" ;;
    *) verdict="failed ($status)" ;;
  esac
  case $status in
    0) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
  number=$(printf %02d "$count")
  {
    printf '{"name": "%s", "result": "%s", "status": %d, "seconds": %d, "data": ' "$name" "$verdict" "$status" "$took"
    if [ "$status" = 0 ] && [ -s "$result" ]; then cat "$result"; else echo null; fi
    printf ', "text": '
    tail -n 400 "$text" | quoted
    printf '}'
  } > "$work/$number.part"
  echo "| $name | $verdict | $took |" >> "$work/table"
  { printf '\n## %s\n\n```\n' "$name"; tail -n 200 "$text"; printf '```\n'; } > "$work/$number.text.md"
  assemble
  say "  $verdict ($took s)"
}

# run NAME [OPTIONS]: runs one of our programs within the rest of the part's time.
run() {
  left=$((end - $(date +%s)))
  [ "$left" -gt 0 ] || return 124
  path=$(program "$1")
  shift
  timeout -k 10 "$left" "$path" "$@"
}

# ---- the parts -----------------------------------------------------------------------------------

devices() { run info --kernels --device "${device:-vulkan}" && run info --json --device "${device:-vulkan}" > "$result"; }

kernel_tests() {
  if "$quick"; then
    run rewind_tests -tse=host,programs '-tc=kernels: binary*'
  else
    run rewind_tests -tse=host,programs \
      '-sf=*test_matrix.cpp,*test_attention*.cpp,*row_kernels.cpp,*test_ops.cpp,*kernels.cpp,*test_chain.cpp'
  fi
}

tests() {
  if "$quick"; then
    run rewind_tests -tse=host,programs '-tc=self-check*,vulkan: transfers*,kernels: binary*'
  else
    run rewind_tests -tse=host
  fi
}

kernels() {
  if "$quick"; then run speed --only gemm/256 --round 0.01; else run speed --dtype f32 && run speed --dtype f16; fi
}

ops() { run bench op_overhead && run bench op_overhead --device dry:vulkan; }

# A CPU takes minutes for one of these.
large() {
  "$is_gpu" || { echo "on a GPU only"; return 77; }
  if "$quick"; then run speed --large --only gemm/4096 --dtype f16; else run speed --large --dtype f16 && run speed --large; fi
}

# Runs one model and batch, plain and in every way to recompute; each run prints its steps' times.
recompute() {
  for options in '' '--checkpoint block' '--recompute memory' "--memory-budget $budget"; do
    echo "resnet ${options:-plain}"
    # shellcheck disable=SC2086 # words
    run resnet --model "$model" --batch 64 --steps "$steps" --dtype f16 $options || return
  done
}

# Prints device time by kernel in a step, and the driver's compiler's results for the longest ones.
profile() {
  export REWIND_PROFILE=1
  status=0
  run resnet --model "$model" --batch 64 --steps "$steps" --dtype f16 --quiet || status=$?
  unset REWIND_PROFILE
  "$is_gpu" && ! "$quick" && [ "$status" = 0 ] || return "$status"
  run info --pipelines ${device:+--device "$device"}
}

tune() { if "$is_gpu" && ! "$quick"; then run tune --quick; else run tune --quick --model mlp --dry; fi; }

resnet() { run resnet --model "$model" --batch 64 --steps "$steps" --dtype "$1" --report "$result"; }
resnet_f32() { resnet f32; }
resnet_f16() { resnet f16; }

# The text to learn from is made here, since a machine need not have any.
bert() {
  set -- "$1" "$here"/licenses/* "$here"/README.txt "$here"/../README.md "$here"/../docs/*.md
  dtype=$1
  shift
  for file; do
    shift
    if [ -f "$file" ]; then set -- "$@" "$file"; fi
  done
  run bert --steps "$steps" --dtype "$dtype" --save "$work/bert" --report "$result" --text "$@"
}
bert_f32() { bert f32; }
bert_f16() { bert f16; }

plain_steps() { if "$quick"; then run bench plain_step --device vulkan; else run bench plain_step --device vulkan --run; fi; }

memory() {
  if "$quick"; then
    run memory_vs_tape --row real --dry --profile vulkan --output "$work/memory"
  else
    run memory_vs_tape --row real --device vulkan --profile vulkan --output "$work/memory"
  fi && cp "$work/memory/memory.json" "$result"
}

pytorch() {
  command -v python3 > /dev/null || { echo "no python3"; return 77; }
  python3 -c 'import torch; print("PyTorch", torch.__version__)' 2> /dev/null || { echo "python3 has no torch"; return 77; }
  if "$is_gpu" && python3 -c 'import torch; exit(not torch.cuda.is_available())' 2> /dev/null; then
    tool=$here/speed.py
    [ -f "$tool" ] || tool=$here/../benchmarks/speed.py
    timeout -k 10 "$((end - $(date +%s)))" python3 "$tool" --build "${programs:-$here}" --large --dtypes f16 \
      --peer-options '--device cuda --dtype f16'
    return
  fi
  for peer in "$here"/peers/*.py "$here"/../benchmarks/peers/*.py; do
    [ -f "$peer" ] || continue
    echo "${peer##*/}"
    left=$((end - $(date +%s)))
    if "$quick"; then set -- unet; else set --; fi
    [ "$left" -gt 0 ] && timeout -k 10 "$left" python3 "$peer" "$@" || return
  done
}

{
  uname -srm
  sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *//'
  sed -n 's/^MemTotal: *//p' /proc/meminfo
} > "$work/machine" 2> /dev/null
: > "$work/table"

# wanted PART: tells whether it is among those to run.
wanted() {
  case ,$skip, in *",$1,"*) return 1 ;; esac
  case ,$only, in ,,) ;; *",$1,"*) ;; *) return 1 ;; esac
}

part devices 120 'devices and self-check'
if ! grep -q '^  in use' "$work/devices.text"; then
  cat "$work/devices.text" >&2
  die "there must be a Vulkan 1.2 device that works${device:+ and matches '$device'}; install its driver" \
    "(Debian: apt install mesa-vulkan-drivers)"
fi
unoffered=$(sed -n 's/^NO GPU IN USE: //p' "$work/devices.text")
if [ -n "$unoffered" ]; then die "$unoffered; --device 0 goes on without it"; fi
# A GPU needs more steps than a CPU for a rate that means something.
is_gpu=true steps=200 model=resnet20 budget=48MiB
if head -n 1 "$work/devices.text" | grep -q ', CPU$'; then is_gpu=false steps=12; fi
if "$quick"; then steps=2 model=resnet8 budget=24MiB; fi
parts | tail -n +2 > "$work/parts"
while read -r function seconds title; do
  if wanted "$function"; then part "$function" "$seconds" "$title"; fi
done < "$work/parts"
say "written: $output/rewind-gpu.md and $output/rewind-gpu.json; of $count parts $failed failed, $skipped were skipped"
[ "$failed" = 0 ]
