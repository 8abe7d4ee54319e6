#!/usr/bin/env bash
# Builds ShardQ and runs all that says whether it is good: every test in the
# configuration `dev`, the IR tests once more with round trips, part of the tests
# under sanitizers, formatting, clang-tidy, freshness of the generated docs, and
# each benchmark once. Installs what is missing. Logs are in build/check.
#
# Goes on after a failure; the last line has the totals, and the exit status is 0
# only if nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh

# Objects are the same in any checkout, so ccache may share them.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
# Tests that ask for faults set this themselves.
unset SHARDQ_FAULT SHARDQ_ROUNDTRIP

logs=build/check
rm -rf "$logs"
mkdir -p "$logs"
passed=0
failed=0
skipped=0

say() {
  printf '\n=== %s (at %d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60))
}

# run NAME COMMAND...: one test, which passes when the command does.
run() {
  local name=$1
  shift
  say "$name"
  if "$@" >"$logs/$name.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    cat "$logs/$name.log"
    echo "FAIL: $name"
  fi
}

# build PRESET [TARGET...]: nothing that stands on it can run when it fails.
build() {
  local preset=$1
  shift
  say "build $preset"
  if ! { cmake --preset "$preset" &&
    cmake --build --preset "$preset" ${1:+--target "$@"}; } >"$logs/build-$preset.log" 2>&1; then
    failed=$((failed + 1))
    tail -n 100 "$logs/build-$preset.log"
    echo "FAIL: build $preset"
    return 1
  fi
}

# suite NAME PRESET DIRECTORY...: tests below build/PRESET/test, counted by lit.
suite() {
  local name=$1 preset=$2 counts
  shift 2
  say "$name"
  rm -f "$logs/$name.json"
  # What failed is in the results.
  "$llvm/bin/lit" -sv --output "$logs/$name.json" \
    "${@/#/build/$preset/test/}" || true
  if ! counts=$(python3 - "$logs/$name.json" <<'COUNT'
import collections, json, sys

kind = {"PASS": 0, "FLAKYPASS": 0, "XFAIL": 0,
        "UNSUPPORTED": 2, "SKIPPED": 2, "EXCLUDED": 2}
counts = collections.Counter(
    kind.get(test["code"], 1) for test in json.load(open(sys.argv[1]))["tests"])
print(counts[0], counts[1], counts[2])
COUNT
  ); then
    counts="0 1 0"
    echo "FAIL: $name left no results"
  fi
  read -r p f s <<<"$counts"
  if ((p + f == 0)); then
    f=1
    echo "FAIL: $name has no test"
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

check_format() {
  local files
  mapfile -t files < <(find benchmark include lib runtime test tools unittests \
    -name '*.cpp' -o -name '*.h' -o -name '*.c')
  clang-format-22 --dry-run --Werror "${files[@]}"
}

run_benchmarks() {
  local benchmark status bad=0
  for benchmark in build/dev/bin/*Benchmark; do
    status=0
    "$benchmark" --benchmark_min_time=0.001 || status=$?
    # 77: this machine lacks what it measures.
    ((status == 0 || status == 77)) || bad=1
  done
  return $bad
}

llvm=$(llvm-config-22 --prefix)

run format check_format
if build dev; then
  suite dev dev .
  SHARDQ_ROUNDTRIP=1 suite roundtrip dev IR Transforms
  run docs scripts/update-docs.sh --check
  run benchmarks run_benchmarks
  run tidy scripts/tidy.py build/dev
fi
# Executed programs are few here: what the JIT makes is not instrumented.
if build asan ShardQUnitTests shardq-opt shardq-run; then
  suite asan asan Unit IR Transforms Conversion Run/ops.test Run/level2.mlir
fi
if build tsan; then
  suite tsan tsan Unit
fi

say "done"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
