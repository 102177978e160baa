#!/bin/sh
# One report about this machine's Vulkan device: what of Rewind works there and how fast. Needs a POSIX shell, awk and
# timeout beside the programs, which lie here (in a bundle) or in the build folder that --programs names.
set -u
usage() {
  cat << 'TEXT'
Usage: gpu [OPTIONS]

Checks and measures Rewind on a Vulkan device in at most 25 minutes (about 2 with --quick), and writes
rewind-gpu.md and rewind-gpu.json: self-check and kernels, all tests, rates of kernels, steps of ResNet and BERT in
f32 and f16, predicted memory against the device's, PyTorch beside it where python3 has it. A part that fails or takes
too long is reported, and the others go on. Both files are up to date after every part.

  --device NAME   an index, a part of the name or uuid=..., else the best device
  --output DIR    where the files go, else the current folder
  --quick         every part, but little of each
TEXT
}

say() { echo "gpu: $*" >&2; }
die() { say "$@"; exit 1; }

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
programs= device=${REWIND_DEVICE:-} output=. quick=false
while [ $# -gt 0 ]; do
  case $1 in
    --device | --output | --programs)
      [ $# -ge 2 ] && [ -n "$2" ] || die "$1 must be followed by a value; --help lists the options"
      case $1 in
        --device) device=${2#vulkan:} ;;
        --output) output=$2 ;;
        --programs) programs=$2 ;;
      esac
      shift 2 ;;
    --quick) quick=true; shift ;;
    -h | --help) usage; exit ;;
    *) die "no such option: $1; --help lists them" ;;
  esac
done
for tool in awk timeout tr mktemp; do
  command -v "$tool" > /dev/null || die "$tool must be installed, it is not"
done
mkdir -p "$output" && work=$(mktemp -d "$output/.rewind-gpu.XXXXXX") ||
  die "$output must be a folder that can be written; name another with --output"
trap 'rm -rf "$work"' EXIT
trap 'say "stopped; what was done is in $output/rewind-gpu.md"; exit 130' INT TERM HUP
export REWIND_CACHE="$work/cache"  # nothing compiled or checked before
mkdir -m 700 "$REWIND_CACHE"
if [ -n "$device" ]; then export REWIND_DEVICE="$device"; fi  # what all programs mean by "vulkan"

# program NAME: its path.
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

# Texts as JSON strings. Bytes that are no ASCII are left out: a text may end in the middle of a letter.
tab=$(printf '\t')
quoted() {
  LC_ALL=C tr -cd '\11\12\40-\176' | sed "s/\\\\/\\\\\\\\/g; s/\"/\\\\\"/g; s/$tab/\\\\t/g" |
    awk 'BEGIN {printf "\""} {printf "%s\\n", $0} END {printf "\""}'
}

# assemble: both files from the parts so far, replaced at once.
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

count=0 failed=0 skipped=0

# part NAME SECONDS FUNCTION: what FUNCTION prints is the part's text; a JSON document that it leaves in $result is its
# result. Every program that it calls by `run` is stopped when SECONDS are over.
part() {
  name=$1 seconds=$2 begin=$(date +%s) status=0
  count=$((count + 1))
  end=$((begin + seconds)) result=$work/result text=$work/$3.text
  rm -f "$result"
  say "$name"
  "$3" > "$text" 2>&1 < /dev/null || status=$?
  took=$(($(date +%s) - begin))
  case $status in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    124 | 137) verdict="stopped after $seconds s" ;;
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

# run NAME [OPTIONS]: a program of ours, in what is left of the part's time.
run() {
  left=$((end - $(date +%s)))
  [ "$left" -gt 0 ] || return 124
  path=$(program "$1")
  shift
  timeout -k 10 "$left" "$path" "$@"
}

# ---- the parts -----------------------------------------------------------------------------------

devices() { run info --kernels ${device:+--device "$device"} && run info --json ${device:+--device "$device"} > "$result"; }

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

ops() { run op_overhead && run op_overhead --device dry:vulkan; }

resnet() { run resnet --model "$model" --batch 64 --steps "$steps" --dtype "$1" --report "$result"; }
resnet_f32() { resnet f32; }
resnet_f16() { resnet f16; }

# What it learns from lies here; a machine need not have any text.
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

plain_steps() { if "$quick"; then run plain_step --device vulkan; else run plain_step --device vulkan --run; fi; }

memory() {
  if "$quick"; then
    run memory_vs_tape --row real --dry-only --profile vulkan --output "$work/memory"
  else
    run memory_vs_tape --row real --device vulkan --profile vulkan --output "$work/memory"
  fi && cp "$work/memory/memory.json" "$result"
}

pytorch() {
  command -v python3 > /dev/null || { echo "no python3"; return 77; }
  python3 -c 'import torch; print("PyTorch", torch.__version__)' 2> /dev/null || { echo "python3 has no torch"; return 77; }
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

part 'devices and self-check' 120 devices
if ! grep -q '^  in use' "$work/devices.text"; then
  cat "$work/devices.text" >&2
  die "there must be a Vulkan 1.2 device that works${device:+ and matches '$device'}; install its driver" \
    "(Debian: apt install mesa-vulkan-drivers)"
fi
# A GPU needs more steps than a CPU for a rate that means something.
if head -n 1 "$work/devices.text" | grep -q ', CPU$'; then steps=12; else steps=200; fi
model=resnet20
if "$quick"; then steps=2 model=resnet8; fi
part 'steps of ResNet in f32' 90 resnet_f32
part 'steps of ResNet in f16' 90 resnet_f16
part 'steps of BERT in f32' 90 bert_f32
part 'steps of BERT in f16' 90 bert_f16
part 'rates of kernels' 150 kernels
part 'predicted memory against the device' 150 memory
part 'plain steps' 90 plain_steps
part 'host time of ops' 30 ops
part 'PyTorch' 90 pytorch
part 'tests' 480 tests
say "written: $output/rewind-gpu.md and $output/rewind-gpu.json; of $count parts $failed failed, $skipped were skipped"
[ "$failed" = 0 ]
