#!/usr/bin/env bash
# Builds ShardQ, shows what --shard-q-tokens makes of DeepSeek-V3.2's attention on 8
# ranks, and runs both programs and a reference, which have to agree. Installs what
# is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

echo "building (the first time takes minutes)"
mkdir -p build
if ! { cmake --preset dev && cmake --build --preset dev --target shardq-opt shardq-run; } \
  >build/demo.log 2>&1; then
  tail -n 50 build/demo.log
  exit 1
fi

program=examples/deepseek-v32-tp8.mlir
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
PATH=$PWD/build/dev/bin:$PATH
show shardq-opt --shard-q-tokens "$program"
show shardq-run "$program" --ranks=8 --step=examples/steps/small-trace-03.json --verify
