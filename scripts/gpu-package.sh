#!/usr/bin/env bash
# Makes a folder that runs on a machine with GPUs, without MLIR and without this
# checkout: shardq-run with all of LLVM in it, the runtime, its tests, the kernels
# and their checks, the examples, and gpu-check.sh, which runs them.
#
#   scripts/gpu-package.sh [OPTION...] [BUILD=build/dev] [OUT=build/gpu-package]
#
#   --chips=LIST  cards to assemble single kernels for (default: sm_90a), by commas
#   --compress    shardq-run.xz instead of shardq-run; gpu-check.sh unpacks it
#   --no-build    take what is in BUILD as it is
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "gpu-package: $*" >&2
  exit 1
}

chips=(sm_90a)
compress=0
build_first=1
places=()
for argument; do
  case $argument in
  --chips=*) IFS=, read -ra chips <<<"${argument#*=}" ;;
  --compress) compress=1 ;;
  --no-build) build_first=0 ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;;
  -*) fail "unknown option $argument" ;;
  *) places+=("$argument") ;;
  esac
done
((${#places[@]} <= 2)) || fail "one build folder and one for the output"
build=${places[0]:-build/dev}
out=${places[1]:-build/gpu-package}
[[ -f $build/CMakeCache.txt ]] || fail "$build is no build folder: cmake --preset dev"

# cached NAME: a variable of the build's configuration.
cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
[[ -z $(cached SHARDQ_SANITIZERS) ]] || fail "$build has sanitizers"
compiler=$(cached CMAKE_CXX_COMPILER)
libraries=$(cd "$(cached LLVM_DIR)/../.." && pwd)
strip=$libraries/../bin/llvm-strip

if ((build_first)); then
  cmake --build "$build" --target shardq-run CudaRuntimeTests shardq-kernels PushBenchmark
fi

# need FILE: says which file of the build is missing.
need() {
  [[ -f $1 ]] || fail "there is no $1: build it, or leave --no-build away"
}
object=$build/tools/shardq-run/CMakeFiles/shardq-run.dir/shardq-run.cpp.o
runtime=$build/lib/libshardq_runtime.so.1
tests=$build/unittests/Runtime/CudaRuntimeTests
kernels=$build/test/bin/shardq-kernels
push=$build/bin/PushBenchmark
for file in "$object" "$runtime" "$tests" "$kernels" "$push"; do
  need "$file"
done
for file in "$tests" "$push"; do
  if readelf -d "$file" | grep -q 'NEEDED.*libstdc++'; then
    fail "$file needs libstdc++.so"
  fi
done

# Only what this script makes is removed.
mkdir -p "$out"
rm -rf "${out:?}"/{shardq-run,shardq-run.xz,libshardq_runtime.so.1,CudaRuntimeTests,PushBenchmark,device,examples,gpu-check.sh,VERSION}
mkdir -p "$out/device" "$out/examples/steps"

echo "linking shardq-run"
shopt -s nullglob
archives=()
for archive in "$libraries"/libMLIR*.a "$libraries"/libLLVM*.a; do
  case ${archive##*/} in
  libMLIR.a | *CAPI* | *Test* | *TableGen* | *Fuzz* | *Exegesis*) ;;
  *) archives+=("$archive") ;;
  esac
done
((${#archives[@]})) || fail "$libraries has no static libraries"
# As libraries of their own where they are: the other machine may have neither.
compression=()
for name in z zstd; do
  archive=$("$compiler" -print-file-name=lib$name.a)
  if [[ $archive == /* ]]; then
    compression+=("$archive")
  else
    compression+=("-l$name")
  fi
done
# shellcheck disable=SC2016 # $ORIGIN is the loader's.
"$compiler" -fuse-ld="$libraries/../bin/ld.lld" -static-libstdc++ -static-libgcc \
  -Wl,--gc-sections -Wl,-s -Wl,-rpath,'$ORIGIN' -o "$out/shardq-run" "$object" \
  -Wl,--start-group "$build"/lib/libShardQ*.a "${archives[@]}" -Wl,--end-group \
  "$runtime" "${compression[@]}" -ldl -lpthread -lm
"$strip" -o "$out/libshardq_runtime.so.1" "$runtime"
"$strip" -o "$out/CudaRuntimeTests" "$tests"
"$strip" -o "$out/PushBenchmark" "$push"

cp test/Device/{cases,ptx,kernels_check}.py test/Integration/Inputs/{context,harness,packed,views}.py "$out/device"
if [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/ptxas ]] || command -v ptxas >/dev/null; then
  echo "assembling kernels"
  python3 -B test/Device/build_kernels.py "$kernels" "$out/device/kernels" "${chips[@]}" \
    >"$out/device/kernels.log" || {
    cat "$out/device/kernels.log"
    fail "kernels that are not as they should be"
  }
else
  echo "there is no ptxas: single kernels are left out, and gpu-check.sh skips them"
fi

cp examples/*.mlir "$out/examples"
cp examples/steps/*.json "$out/examples/steps"
cp scripts/gpu-check.sh "$out"
git describe --always --dirty >"$out/VERSION" 2>/dev/null || echo unknown >"$out/VERSION"

if ((compress)); then
  echo "compressing"
  xz -1 -T0 "$out/shardq-run"
fi
du -sh "$out"
