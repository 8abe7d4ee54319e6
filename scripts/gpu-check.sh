#!/usr/bin/env bash
# Checks ShardQ on the GPUs of this machine, then times it. Runs from the folder that
# gpu-package.sh makes, and needs nothing but bash, coreutils and a driver; what
# needs python3, torch or compute-sanitizer is skipped where they are missing.
#
#   gpu-check.sh [OPTION...]
#
#   --bench=N       replays in a trial of a benchmark (default 100)
#   --gpus=N        use the first N GPUs (default: all)
#   --jobs=N        checks at a time (default 4); benchmarks run alone
#   --logs=DIR      for the output of each check (default: gpu-check-logs)
#   --match=REGEX   only checks with such names
#   --no-bench      no benchmarks
#   --no-sanitizer  no compute-sanitizer
#   --only=GROUPS   some of runtime,kernels,verify,trace,roundtrip,graph,faults,
#                   nccl,sanitizer,bench,peers
#   --package=DIR   what gpu-package.sh made (default: where this script lies)
#   --peers=DIR     where exchange_peers.py is: the same exchanges by torch and NCCL
#                   (default: peers in the package, where that is)
#   --worlds=LIST   counts of ranks for the runtime's tests (default 2,3,4,8)
#   --target=cpu    a rehearsal on CPU ranks of what they can do
#
# One line a check, then a table of all; the exit status is 1 if one failed, 77
# where there is no GPU, 2 for bad options.
set -euo pipefail

package=$(cd "$(dirname "$0")" && pwd)
logs=gpu-check-logs
peers=
match=
only=
target=cuda
jobs=4
replays=100
gpus=
bench=1
sanitizer=1
worlds=2,3,4,8

fail() {
  echo "gpu-check: $*" >&2
  exit 2
}

# Values may also stand by themselves: --logs DIR.
while (($#)); do
  case $1 in
  --bench | --gpus | --jobs | --logs | --match | --only | --package | --peers | --target | --worlds)
    (($# > 1)) || fail "$1 needs a value"
    set -- "$1=$2" "${@:3}"
    ;;
  esac
  case $1 in
  --bench=*) replays=${1#*=} ;;
  --gpus=*) gpus=${1#*=} ;;
  --jobs=*) jobs=${1#*=} ;;
  --logs=*) logs=${1#*=} ;;
  --match=*) match=${1#*=} ;;
  --no-bench) bench=0 ;;
  --no-sanitizer) sanitizer=0 ;;
  --only=*) only=${1#*=} ;;
  --package=*) package=${1#*=} ;;
  --peers=*) peers=${1#*=} ;;
  --target=cpu | --target=cuda) target=${1#*=} ;;
  --worlds=*) worlds=${1#*=} ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;;
  *) fail "unknown option $1" ;;
  esac
  shift
done
[[ $jobs =~ ^[1-9][0-9]*$ && $replays =~ ^[1-9][0-9]*$ && ${gpus:-1} =~ ^[1-9][0-9]*$ ]] ||
  fail "--bench, --gpus and --jobs are positive numbers"

# --- What there is ------------------------------------------------------------

visible=2
if [[ $target == cuda ]]; then
  visible=0
  if command -v nvidia-smi >/dev/null; then
    visible=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
  fi
  if [[ -n ${CUDA_VISIBLE_DEVICES+x} ]]; then
    # The driver sees no device behind the first that is not there.
    IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"
    [[ ${devices[0]:--1} == -1 ]] && devices=()
    ((visible <= ${#devices[@]})) || visible=${#devices[@]}
  fi
  if ((visible == 0)); then
    echo "unsupported: no GPU"
    exit 77
  fi
fi
gpus=${gpus:-$visible}
((gpus <= visible)) || fail "--gpus=$gpus, but there are $visible"
if [[ $target == cuda ]]; then
  if [[ -z ${CUDA_VISIBLE_DEVICES+x} ]]; then
    CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((gpus - 1)))
  else
    CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${devices[*]:0:gpus}")
  fi
  export CUDA_VISIBLE_DEVICES
fi

# Never a multicast object.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
# Checks that ask for faults set this themselves.
unset SHARDQ_FAULT SHARDQ_CUDA_DRIVER

[[ $peers || ! -d $package/peers ]] || peers=$package/peers
[[ -d $package/examples ]] || fail "$package is not what gpu-package.sh makes"
package=$(cd "$package" && pwd)
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
rm -rf "$logs"/{results,programs,data}
rm -f "$logs"/*.log
mkdir "$logs"/{results,programs,data}

shardq_run=$package/shardq-run
if [[ ! -x $shardq_run ]]; then
  [[ -f $shardq_run.xz ]] || fail "there is neither $shardq_run nor $shardq_run.xz"
  # Where the package cannot be written to, the logs can.
  [[ -w $package ]] || shardq_run=$logs/programs/shardq-run
  xz -d -T0 -c "$package/shardq-run.xz" >"$shardq_run.part"
  chmod +x "$shardq_run.part"
  mv "$shardq_run.part" "$shardq_run"
fi
export LD_LIBRARY_PATH=$package${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# --- Running and recording ----------------------------------------------------

number=0
begin_all=$SECONDS

milliseconds() {
  local now
  now=$(date +%s%N)
  echo $((now / 1000000))
}

# record INDEX RESULT NAME MILLISECONDS NOTE: for the table.
record() {
  printf '%s\t%s\t%s\t%s\n' "$2" "$3" "$4" "$5" >>"$logs/results/$(printf '%04d' "$1")"
}

# say RESULT NAME MILLISECONDS NOTE: a line.
say() {
  printf '%-4s %-38s %3d.%d s  %s\n' "$1" "$2" $(($3 / 1000)) $(($3 % 1000 / 100)) "$4"
}

# perform INDEX NAME LIMIT COMMAND...: one check. The command runs in this shell; it
# passes or fails by its status, 77 skips; what it sets `note` to stands in the table.
perform() {
  local index=$1 name=$2 limit=$3 begin took status=0 result note="" log=$logs/$2.log
  shift 3
  begin=$(milliseconds)
  "$@" >"$log" 2>&1 || status=$?
  took=$(($(milliseconds) - begin))
  case $status in
  0) result=pass ;;
  77) result=skip ;;
  *)
    result=FAIL
    if ((status == 124 || status == 137)); then
      note="over $limit s${note:+; $note}"
    elif [[ -z $note ]]; then
      note=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c1-150 || true)
    fi
    note="${note:+$note; }status $status"
    ;;
  esac
  say "$result" "$name" "$took" "$note"
  record "$index" "$result" "$name" "$took" "$note"
}

# named NAME: whether the check is asked for.
named() {
  [[ -z $match || $1 =~ $match ]]
}

# check NAME LIMIT COMMAND...: in the background, beside others.
check() {
  named "$1" || return 0
  number=$((number + 1))
  while (($(jobs -rp | wc -l) >= jobs)); do
    wait -n || true
  done
  perform "$number" "$@" &
}

# alone NAME LIMIT COMMAND...: when nothing else runs.
alone() {
  named "$1" || return 0
  wait
  number=$((number + 1))
  perform "$number" "$@"
}

# skip NAME WHY
skip() {
  named "$1" || return 0
  number=$((number + 1))
  say skip "$1" 0 "$2"
  record "$number" skip "$1" 0 "$2"
}

# wanted GROUP
wanted() {
  [[ -z $only || ,$only, == *,$1,* ]]
}

# limited COMMAND...: within the check's limit, with all processes that it starts.
limited() {
  timeout -k 10 "$limit" "$@"
}

# ranks N OPTION...: shardq-run, with N ranks dealt over the GPUs. It gives up before
# it is killed, since only then it says why.
transport=auto
ranks() {
  local count=$1
  shift
  local options=(--target="$target")
  if [[ $target == cuda ]]; then
    options+=(--ranks-per-gpu=$(((count + gpus - 1) / gpus)) --arch="$chip" --transport="$transport")
  fi
  limited "$shardq_run" "${options[@]}" --timeout=$((limit > 30 ? limit - 15 : limit / 2)) "$@"
}

chip=sm_90a
python=0
torch=0
{
  echo "ShardQ $(cat "$package/VERSION") on $(uname -n), $(date -u '+%Y-%m-%d %H:%M UTC')"
  if [[ $target == cuda ]]; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 || true)
    case $capability in
    8.*) chip=sm_80 ;;
    10.*) chip=sm_100a ;;
    esac
    nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader || true
    echo "$gpus of them, $chip"
  else
    echo "a rehearsal: ranks are processes of this CPU"
  fi
  if python3 -c 'import numpy' 2>/dev/null; then
    python=1
    version=$(python3 -c 'import torch; assert torch.cuda.is_available(); print(torch.__version__)' 2>/dev/null) &&
      torch=1 && echo "torch $version"
  fi
  ((python)) || echo "no python3 with numpy: skips what needs it"
  ((torch)) || echo "no torch that sees a GPU: skips what needs it"
} >"$logs/machine.txt"
cat "$logs/machine.txt"
if [[ $target == cuda ]]; then
  nvidia-smi topo -m >>"$logs/machine.txt" 2>&1 || true
fi

# NCCL wants a GPU for each rank.
find_nccl() {
  [[ -z ${SHARDQ_NCCL:-} ]] || return 0
  if ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2 '; then
    return 0
  fi
  # Where torch's packages have it.
  SHARDQ_NCCL=$(python3 -c 'import nvidia.nccl as n; print(n.__path__[0] + "/lib/libnccl.so.2")' 2>/dev/null) || return 1
  [[ -f $SHARDQ_NCCL ]] || return 1
  export SHARDQ_NCCL
}
no_nccl=""
if [[ $target == cpu ]]; then
  no_nccl="needs a GPU"
elif ! find_nccl; then
  no_nccl="not run: no libnccl"
elif ((gpus < 2)); then
  no_nccl="needs two GPUs"
fi

# --- Programs and steps -------------------------------------------------------

programs=$logs/programs
examples=$package/examples
sed -e 's/"tp" = 8/"tp" = 2/' -e 's/x16x/x64x/g' -e 's/over 8 ranks: 16 heads/over 2 ranks: 64 heads/' \
  "$examples/deepseek-v32-tp8.mlir" >"$programs/v32-tp2.mlir"
tp2=$programs/v32-tp2.mlir
# dcp_program TP DCP: decode over a KV cache that is divided over DCP of TP ranks.
dcp_program() {
  sed -e "s/\"tp\" = 8, \"dcp\" = 8/\"tp\" = $1, \"dcp\" = $2/" -e "s/x16x/x$((128 / $1))x/g" \
    -e "s/^\(.*\) over 8 ranks, decode: 16 heads and an eighth/\1 over $1 ranks, decode: $((128 / $1)) heads and 1\/$2/" \
    "$examples/deepseek-v32-dcp8-decode.mlir" >"$programs/v32-tp$1-dcp$2.mlir"
}
dcp_program 2 2
dcp_program 4 4
dcp_program 4 2
dcp2=$programs/v32-tp2-dcp2.mlir
# Rows in rank order rather than heads.
sed -e 's/"tp" = 4, "dcp" = 4/"tp" = 2, "dcp" = 2/' -e 's/over 4 ranks, decode with/over 2 ranks, decode with/' \
  -e 's/a quarter of/half of/g' "$examples/deepseek-v32-dcp4-tokens.mlir" >"$programs/v32-dcp2-tokens.mlir"
shards2=$programs/v32-dcp2-tokens.mlir
# With a sink for each head, which joins the merge.
sed -e 's/%table: tensor<?x?xi32>)$/%sink: tensor<128xf32>, &/' -e 's/rows(%req)$/rows(%req) sink(%sink)/' \
  -e 's/tensor<?x2048xi32>, tensor<?xi32>) -> tensor<?x64x512xbf16>$/tensor<?x2048xi32>, tensor<?xi32>, tensor<128xf32>) -> tensor<?x64x512xbf16>/' \
  "$dcp2" >"$programs/v32-tp2-dcp2-sinks.mlir"
sinks2=$programs/v32-tp2-dcp2-sinks.mlir
# packed_program PROGRAM FORMAT: its latent cache in 656 bytes a row.
packed_program() {
  sed -e 's/%kv: tensor<?x576xbf16>/%kv: tensor<?x656xi8>/' -e 's/x64xbf16>, tensor<?x576xbf16>,$/x64xbf16>, tensor<?x656xi8>,/' \
    -e "s/{scale = /{kv_format = #shardq.packed_rows<$2>, scale = /" "$1"
}
packed_program "$dcp2" '512 x f8E4M3FN, rope = 64, order = scales_rope' >"$programs/v32-tp2-dcp2-packed.mlir"
dcp='builtin.module(shardq-dcp{step=decode remarks=false})'
padded='builtin.module(shardq-dcp{step=decode padded-heads=144 remarks=false})'
# Steps with prefill gather keys: always, where the step says so, and with tokens sharded.
gather='builtin.module(shardq-dcp{step=gather remarks=false})'
gate='builtin.module(shardq-dcp{remarks=false})'
combine='builtin.module(shardq-dcp{remarks=false decode-rows=combine})'
sed -e 's/"tp" = 4, "dcp" = 4/"tp" = 2, "dcp" = 2/' -e 's/x16x/x32x/g' -e 's/over 4 ranks, decode and prefill in one step: 16 heads and a/over 2 ranks, decode and prefill in one step: 32 heads and a/' \
  -e 's/^\/\/ quarter of/\/\/ half of/' "$examples/glm5-tp4-dcp4-mixed.mlir" >"$programs/glm5-tp2-dcp2-mixed.mlir"
mixed2=$programs/glm5-tp2-dcp2-mixed.mlir
sed -e 's/"tp" = 8, "dcp" = 8/"tp" = 2, "dcp" = 2/' -e 's/x16x/x64x/g' -e 's/over 8 ranks, prefill with cached context: 16 heads and/over 2 ranks, prefill with cached context: 64 heads and/' \
  -e 's/^\/\/ an eighth of/\/\/ half of/' "$examples/deepseek-v32-dcp8-prefill.mlir" >"$programs/v32-tp2-dcp2-prefill.mlir"
prefill2=$programs/v32-tp2-dcp2-prefill.mlir
packed_program "$prefill2" '512 x i8, rope = 64, order = rope_scales' >"$programs/v32-tp2-dcp2-packed-prefill.mlir"
# chunk_program PCP TP DCP: requests in chunks over PCP, heads over TP, KV over DCP of each TP.
chunk_program() {
  local heads=$((128 / $2))
  sed -e "s/\"pcp\" = 2, \"tp\" = 2, \"dcp\" = 2 in/\"pcp\" = $1, \"tp\" = $2, \"dcp\" = $3 in/" \
    -e "s/x64x512x/x${heads}x512x/g" -e "s/x64x64x/x${heads}x64x/g" \
    -e "s/over 4 ranks, chunked prefill/over $(($1 * $2)) ranks, chunked prefill/" \
    -e "s/of prefill requests over 2 (pcp), heads and the KV cache over 2 in each of/of prefill requests over $1 (pcp), heads over $2 and the KV cache over $3 in each of/" \
    "$examples/deepseek-v32-pcp2-dcp2-chunked.mlir" >"$programs/v32-pcp$1-tp$2-dcp$3.mlir"
}
chunk_program 2 1 1
chunk_program 2 2 2
chunk_program 4 1 1
chunk_program 4 2 2
chunk_program 2 4 2
chunk_program 8 1 1
# kv_over_all PCP TP: the same with KV over all ranks, of which those along PCP have the same heads.
kv_over_all() {
  chunk_program "$1" "$2" "$2"
  sed -e "s/\"dcp\" = $2 in \"tp\"\]/\"dcp\" = $2 in \"tp\", \"kv\" = $(($1 * $2)) of [\"pcp\", \"dcp\"]]/" \
    -e 's/interleave<64> \["dcp"\]/interleave<64> ["kv"]/' -e "s/over $2 in each of/over all of/" \
    "$programs/v32-pcp$1-tp$2-dcp$2.mlir" >"$programs/v32-pcp$1-tp$2-all.mlir"
}
kv_over_all 2 1
kv_over_all 2 2
kv_over_all 4 1
chunks2=$programs/v32-pcp2-tp1-dcp1.mlir
# One attention call a step, or one for heads and one for tails.
chunks='builtin.module(shardq-pcp{remarks=false},shardq-dcp{remarks=false})'
two_calls='builtin.module(shardq-pcp{two-calls=true remarks=false},shardq-dcp{remarks=false})'

# written_program RANKS INTERLEAVE BLOCKS FORMAT: V3.2's rows of the step, packed into the
# rank's KV cache, and keys of the indexer into a cache that each rank has whole, with BLOCKS
# of its blocks to one of the table; all are read in the same step.
written_program() {
  local heads=$((128 / $1)) split='{shardq.split = #shardq.split<@ranks, 1 over "tp">}' view='#shardq.view<replicated>'
  local q="tensor<?x$((128 / $1))x576xbf16>" out="tensor<?x$((128 / $1))x512xbf16>"
  local keys="tensor<?x128xbf16, $view>" whole="tensor<?x?xi32, $view>" kv="tensor<?x656xi8>" i32="tensor<?xi32>"
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = $1, "dcp" = $1 in "tp"]
func.func @attention(%q: $q $split, %new: tensor<?x576xbf16>, %kv: $kv,
    %index_q: tensor<?x64x128xbf16>, %index_w: tensor<?x64xf32>, %new_key: tensor<?x128xbf16>, %index_k: $keys,
    %query_start: $i32, %seq_lens: $i32, %table: tensor<?x?xi32>) -> ($out $split) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : $q
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows {speculative_tokens = 1 : i64}
      : ($i32, $i32, index) -> ($i32, $i32)
  %view = shardq.replicated_table %table lengths(%seq_lens) over @ranks "dcp" {blocks_per_block = $3 : i64}
      : (tensor<?x?xi32>, $i32) -> $whole
  %all_at = shardq.token_slots table(%view) rows(%req, %visible) {block_size = 64 : i64}
      : ($whole, $i32, $i32) -> tensor<?xi64, $view>
  %keys = shardq.write_rows %new_key at(%all_at) into(%index_k)
      : (tensor<?x128xbf16>, tensor<?xi64, $view>, $keys) -> $keys
  %own_at = shardq.token_slots table(%table) rows(%req, %visible) over @ranks "dcp"
      {block_size = 64 : i64, block_stride_rows = 70 : i64, interleave = $2 : i64}
      : (tensor<?x?xi32>, $i32, $i32) -> tensor<?xi64>
  %packed = shardq.pack_rows %new {format = #shardq.packed_rows<$4>} : (tensor<?x576xbf16>) -> $kv
  %written = shardq.write_rows %packed at(%own_at) into(%kv) : ($kv, tensor<?xi64>, $kv) -> $kv
  %topk = shardq.indexer q(%index_q) weights(%index_w) keys(%keys) table(%view) rows(%req, %visible) {block_size = 64 : i64}
      : (tensor<?x64x128xbf16>, tensor<?x64xf32>, $keys, $whole, $i32, $i32) -> tensor<?x2048xi32>
  %slots = shardq.convert_indices %topk table(%table) rows(%req) {block_size = 64 : i64, block_stride_rows = 70 : i64}
      : (tensor<?x2048xi32>, tensor<?x?xi32>, $i32) -> tensor<?x2048xi32>
  %out = shardq.sparse_mla q(%q) kv(%written) slots(%slots) rows(%req) {kv_format = #shardq.packed_rows<$4>,
      scale = 0.135233775 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<$2> ["dcp"]>}
      : ($q, $kv, tensor<?x2048xi32>, $i32) -> $out
  return %out : $out
}
PROGRAM
}
written2=$programs/v32-dcp2-written.mlir
written_program 2 64 1 '512 x f8E4M3FN, rope = 64, order = scales_rope' >"$written2"

# step NAME QUERY_LENS CONTEXT_LENS [DECODES]
step() {
  echo "{\"query_lens\": [$2], \"context_lens\": [$3], \"block_size\": 64${4:+, \"decodes\": $4}}" \
    >"$programs/$1.json"
}

# begin_program WORLD HEADS DIM TYPE DECODES RESULT: a function of q and the step,
# up to the split; RESULT is its result's type.
begin_program() {
  local q="tensor<?x$2x$3x$4>" split='{shardq.split = #shardq.split<@ranks, 1 over "tp">}'
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = $1]
func.func @exchange(%q: $q $split,
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>) -> ($6) {
  %c0 = arith.constant 0 : index
  %decodes = arith.constant $5 : index
  %rows = tensor.dim %q, %c0 : $q
  %ids, %offsets = shardq.zigzag_split %query_start decodes(%decodes) rows(%rows)
      over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<$(($1 + 1))xi32>)
PROGRAM
}

# exchange RESULT FROM heads_to_tokens|tokens_to_heads WORLD HEADS DIM TYPE
exchange() {
  local one="tensor<?x$5x$6x$7>" all="tensor<?x$(($4 * $5))x$6x$7>"
  local types=("$one" "$all")
  [[ $3 == heads_to_tokens ]] || types=("$all" "$one")
  cat <<PROGRAM
  %$1 = shardq.exchange $3(%$2) by(%ids, %offsets) decodes(%decodes) over @ranks "tp"
      : (${types[0]}, tensor<?xi32>, tensor<$(($4 + 1))xi32>, index) -> ${types[1]}
PROGRAM
}

# exchanges COUNT: that many of [T, 64, 576] bf16, each of which only arrives.
exchanges() {
  local i result="tensor<?xi32>"
  begin_program 2 64 576 bf16 0 "$result"
  for ((i = 0; i != $1; ++i)); do
    exchange "x$i" q heads_to_tokens 2 64 576 bf16
  done
  echo "  return %query_start : $result"
  echo "}"
}

# gathers WORLD COUNT: that many of [T, 64, 576] bf16, each of which only arrives.
gathers() {
  local i q="tensor<?x$((64 / $1))x576xbf16>"
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = $1]
func.func @gather(%q: $q {shardq.split = #shardq.split<@ranks, 1 over "tp">},
    %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>) -> tensor<?xi32> {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : $q
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
PROGRAM
  for ((i = 0; i != $2; ++i)); do
    echo "  %x$i = shardq.gather_query(%q) over @ranks \"tp\" : ($q) -> tensor<?x64x576xbf16>"
  done
  echo "  return %req : tensor<?xi32>"
  echo "}"
}

# combines WORLD COUNT: that many of [T, 64, 512] bf16 with LSEs of base 2.
combines() {
  local i out="tensor<?x$((64 / $1))x512xbf16>" results="" outs="" attributes=""
  local given="tensor<?x64x512xbf16>, tensor<?x64xf32>" split='{shardq.split = #shardq.split<@ranks, 1 over "tp">}'
  for ((i = 0; i != $2; ++i)); do
    results+="${results:+, }%x$i"
    outs+="${outs:+, }$out"
    attributes+="${attributes:+, }$out $split"
  done
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = $1]
func.func @combine(%partial: tensor<?x64x512xbf16>, %lse: tensor<?x64xf32>) -> ($attributes) {
PROGRAM
  for ((i = 0; i != $2; ++i)); do
    echo "  %x$i = shardq.combine_lse %partial lse(%lse) over @ranks \"tp\" {lse = #shardq.lse<base = two>} : ($given) -> $out"
  done
  echo "  return $results : $outs"
  echo "}"
}

# kv_program WORLD INTERLEAVE BLOCK STRIDE TYPE DIM...: one position a row, and the row of
# the cache that it has among those that are gathered. All ranks have one cache, of one
# or two parts.
kv_program() {
  local world=$1 interleave=$2 block=$3 stride=$4 type=$5 part i=0 dim=0 sources="" names="" types=""
  shift 5
  for part; do
    sources+="%kv$i: tensor<?x${part}x$type>, "
    names+="${names:+, }%kv$i"
    types+="tensor<?x${part}x$type>, "
    dim=$((dim + part))
    i=$((i + 1))
  done
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = $world]
func.func @gather($sources%positions: tensor<?x1xi32>, %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>,
    %table: tensor<?x?xi32>) -> (tensor<?x${dim}x$type> {shardq.split = #shardq.split<@ranks, 0 over "tp">}) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %positions, %c0 : tensor<?x1xi32>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%seq_lens) over @ranks "tp"
      {block_size = $block : i64, interleave = $interleave : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %handle = shardq.gather_kv_start($names) blocks(%blocks, %count) over @ranks "tp"
      {block_size = $block : i64, block_stride_rows = $stride : i64}
      : (${types}tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %slots = shardq.gathered_slots %positions blocks(%inverse, %count) rows(%req) over @ranks "tp"
      {block_size = $block : i64, interleave = $interleave : i64}
      : (tensor<?x1xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x1xi32>
  %all = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x${dim}x$type>
  %ids = tensor.collapse_shape %slots [[0, 1]] : tensor<?x1xi32> into tensor<?xi32>
  %found = shardq.take_rows %all[%ids] : (tensor<?x${dim}x$type>, tensor<?xi32>) -> tensor<?x${dim}x$type>
  return %found : tensor<?x${dim}x$type>
}
PROGRAM
}

# rows_program WORLD HEADS DIM TYPE: all rows of all ranks on each, a result for each rank's.
rows_program() {
  local world=$1 x="tensor<?x$2x$3x$4>" split='{shardq.split = #shardq.split<@ranks, 1 over "tp">}'
  local i types="" attributes="" body="" results=""
  for ((i = 0; i != world; ++i)); do
    types+="${types:+, }$x"
    attributes+="${attributes:+, }$x $split"
    results+="${results:+, }%x$i"
    body+="  %i$i = arith.constant $i : index
  %o$i = arith.muli %rows, %i$i : index
  %x$i = tensor.extract_slice %all[%o$i, 0, 0] [%rows, $2, $3] [1, 1, 1] : $x to $x
"
  done
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = $world]
func.func @rows(%x: $x $split) -> ($attributes) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : $x
  %all = shardq.gather_rows %x over @ranks "tp" : ($x) -> $x
$body  return $results : $types
}
PROGRAM
}

# kv_gathers WORLD COUNT: that many gathers of rows of 576 bf16 in blocks of 64, each of
# which only arrives.
kv_gathers() {
  local i kv="tensor<?x576xbf16>"
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = $1]
func.func @gather(%kv: $kv, %query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>, %q: tensor<?x16xbf16>)
    -> tensor<?xi32> {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %q, %c0 : tensor<?x16xbf16>
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%seq_lens) over @ranks "tp"
      {block_size = 64 : i64, interleave = 64 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
  %own = shardq.take_rows %q[%req] : (tensor<?x16xbf16>, tensor<?xi32>) -> tensor<?x16xbf16>
PROGRAM
  for ((i = 0; i != $2; ++i)); do
    cat <<PROGRAM
  %h$i = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "tp" {block_size = 64 : i64}
      : ($kv, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
  %x$i = shardq.gather_kv_finish %h$i : (!shardq.kv_gather) -> $kv
PROGRAM
  done
  echo "  return %req : tensor<?xi32>"
  echo "}"
}

# rows_of OP COUNT: convert_indices, filter_indices, gathered_slots or take_rows of COUNT
# arrays of [8192, 2048] i32.
rows_of() {
  local given="tensor<8192x2048xi32>" rows="tensor<?x2048xi32>" arguments="" body="" results="" types="" i
  local split="" attributes="" blocks=""
  for ((i = 0; i != $2; ++i)); do
    arguments+="%topk$i: $given, "
    case $1 in
    convert_indices)
      body+="  %x$i = shardq.convert_indices %topk$i table(%table) rows(%req) {block_size = 64 : i64}
      : ($given, tensor<?x?xi32>, tensor<?xi32>) -> $given
"
      rows=$given
      ;;
    filter_indices)
      body+="  %x$i = shardq.filter_indices %topk$i table(%table) rows(%req) over @ranks \"tp\"
      {block_size = 64 : i64, interleave = 64 : i64} : ($given, tensor<?x?xi32>, tensor<?xi32>) -> $given
"
      rows=$given
      attributes=' {shardq.split = #shardq.split<@ranks, 1 over "tp">}'
      ;;
    gathered_slots)
      body+="  %x$i = shardq.gathered_slots %topk$i blocks(%inverse, %count) rows(%req) over @ranks \"tp\"
      {block_size = 64 : i64, interleave = 64 : i64}
      : ($given, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> $given
"
      rows=$given
      blocks="  %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%seq_lens) over @ranks \"tp\"
      {block_size = 64 : i64, interleave = 64 : i64}
      : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
"
      ;;
    take_rows)
      body+="  %x$i = shardq.take_rows %topk$i[%ids] : ($given, tensor<?xi32>) -> $rows
"
      ;;
    esac
    results+="${results:+, }%x$i"
    types+="${types:+, }$rows"
    split+="${split:+, }$rows$attributes"
  done
  cat <<PROGRAM
shardq.mesh @ranks ["tp" = 2]
func.func @rows($arguments%query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %table: tensor<?x?xi32>) -> ($split) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %topk0, %c0 : $given
  %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
  %ids, %offsets = shardq.zigzag_split %query_start decodes(%c0) rows(%rows)
      over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<3xi32>)
$blocks$body  return $results : $types
}
PROGRAM
}

# --- Checks -------------------------------------------------------------------

# runtime_tests FILTER
runtime_tests() {
  local code=0
  limited "$package/CudaRuntimeTests" --gtest_filter="$1" || code=$?
  if ((code)); then
    note=$(sed -n 's/^\[  FAILED  \] \([^ ,]*\).*ms)$/\1/p' "$log" | paste -sd' ' | cut -c1-150)
    return $code
  fi
  if grep -q 'no CUDA device' "$log"; then
    note="the tests see no device"
    return 1
  fi
  note="$(grep -c '^\[       OK' "$log" || true) tests, $(grep -c '^\[  SKIPPED \] .*ms)' "$log" || true) skipped"
}

runtime_replays() {
  SHARDQ_TEST_REPLAYS=10000 limited "$package/CudaRuntimeTests" \
    --gtest_filter='*Ranks.GraphReplays/threads_2:*Ranks.GraphReplays/processes_2' || return
  note="$(grep -c '^\[       OK' "$log" || true) tests"
  [[ $note != "0 tests" ]]
}

kernel_checks() {
  limited python3 -B "$package/device/kernels_check.py" "$package/device/kernels" --chip "$chip" --no-times \
    --only "$1" || return
  note="$(grep -c '^PASS' "$log" || true) checks"
  [[ $note != "0 checks" ]]
}

verified() {
  ranks "$@" --verify
}

# random_array FILE TYPE SHAPE BYTES
random_array() {
  {
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    head -c "$4" /dev/urandom
  } >"$1"
}

on_buffers='builtin.module(one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},shardq-plan-workspace,shardq-verify-protocol)'

# round_trip WORLD HEADS DIM TYPE DECODES [LENGTHS]: to token shards and back on
# buffers: push, signal and wait. Rows of decodes stay where they are, so those of
# the result are not looked at. Bytes are random: NaNs of any kind too.
round_trip() {
  local world=$1 heads=$2 dim=$3 type=$4 decodes=$5 name="w$1-h$2-$3-$4-d$5-$transport${6:+-long}" i
  local -A codes=([bf16]='<u2' [f16]='<f2' [f32]='<f4' [f8E4M3FN]='|i1')
  local lengths=() contexts=() rows=0 bytes
  for ((i = 0; i != decodes; ++i)); do
    lengths+=(1)
  done
  # Around a token a chunk, none, and many.
  # shellcheck disable=SC2206 # lengths are words
  lengths+=(${6:-$((2 * world - 1)) $((2 * world)) $((2 * world + 1)) 1 0 8 $((5 * world + 3))})
  for i in "${lengths[@]}"; do
    rows=$((rows + i))
    contexts+=(64)
  done
  step "$name" "$(IFS=, && echo "${lengths[*]}")" "$(IFS=, && echo "${contexts[*]}")" "$decodes"
  {
    begin_program "$world" "$heads" "$dim" "$type" "$decodes" \
      "tensor<?x${heads}x${dim}x$type> {shardq.split = #shardq.split<@ranks, 1 over \"tp\">}"
    exchange mine q heads_to_tokens "$world" "$heads" "$dim" "$type"
    exchange back mine tokens_to_heads "$world" "$heads" "$dim" "$type"
    echo "  return %back : tensor<?x${heads}x${dim}x$type>"
    echo "}"
  } >"$programs/$name.mlir"

  bytes=$((world * heads * dim * (${codes[$type]#??})))
  random_array "$logs/data/$name.npy" "${codes[$type]}" "$rows, $((world * heads)), $dim" $((rows * bytes))
  ranks "$world" "$programs/$name.mlir" --step="$programs/$name.json" --input=q="$logs/data/$name.npy" \
    --output-dir="$logs/data/$name" --pipeline="$on_buffers" || return
  cmp <(tail -c $(((rows - decodes) * bytes)) "$logs/data/$name.npy") \
    <(tail -c $(((rows - decodes) * bytes)) "$logs/data/$name/result0.npy") || return
  note="$rows rows"
  rm -rf "$logs/data/$name" "$logs/data/$name.npy"
}

# two_sources WORLD HEADS DIM OTHER_DIM TYPE: the concatenation that a push makes, to
# token shards and back, against one that is made here.
two_sources() {
  local world=$1 heads=$2 first=$3 second=$4 type=$5 name="w$1-h$2-$3+$4-$5-$transport"
  local dim=$((first + second)) rows=$((7 * world + 5))
  step "$name" "$((rows - 3)),0,3" "64,64,64"
  {
    begin_program "$world" "$heads" "$first" "$type" 0 \
      "tensor<?x${heads}x${dim}x$type> {shardq.split = #shardq.split<@ranks, 1 over \"tp\">}" |
      sed "s/%query_start: tensor/%rope: tensor<?x${heads}x${second}x$type> {shardq.split = #shardq.split<@ranks, 1 over \"tp\">}, &/"
    exchange mine "q, %rope" heads_to_tokens "$world" "$heads" "$dim" "$type" |
      sed "s/(tensor<?x${heads}x${dim}x$type>,/(tensor<?x${heads}x${first}x$type>, tensor<?x${heads}x${second}x$type>,/"
    exchange back mine tokens_to_heads "$world" "$heads" "$dim" "$type"
    echo "  return %back : tensor<?x${heads}x${dim}x$type>"
    echo "}"
  } >"$programs/$name.mlir"

  local all=$((world * heads)) nope=$logs/data/$name-nope rope=$logs/data/$name-rope
  random_array "$nope.npy" '<u2' "$rows, $all, $first" $((rows * all * first * 2))
  random_array "$rope.npy" '<u2' "$rows, $all, $second" $((rows * all * second * 2))
  ranks "$world" "$programs/$name.mlir" --step="$programs/$name.json" --input=q="$nope.npy" --input=rope="$rope.npy" \
    --output-dir="$logs/data/$name" --pipeline="$on_buffers" || return
  # As hexadecimal lines of one head each: side by side, they are the result's.
  heads_of() {
    tail -c $((rows * all * $2 * 2)) "$1" | od -An -v -tx1 -w$(($2 * 2))
  }
  cmp <(paste -d '' <(heads_of "$nope.npy" "$first") <(heads_of "$rope.npy" "$second")) \
    <(heads_of "$logs/data/$name/result0.npy" "$dim") || return
  note="$rows rows"
  rm -rf "$logs/data/$name" "$nope.npy" "$rope.npy"
}

# as_on_cpu WORLD NAME RESULTS [OPTION...]: the first results of a program, which has the
# options, bit by bit those that the CPU finds without.
as_on_cpu() {
  local name=$2 result
  local run=("$1" "$programs/$name.mlir" --step="$programs/$name.json") found=$logs/data/$name
  target=cpu ranks "${run[@]}" --output-dir="$found-cpu" || return
  ranks "${run[@]}" --output-dir="$found-found" "${@:4}" || return
  for ((result = 0; result != $3; ++result)); do
    cmp "$found-cpu/result$result.npy" "$found-found/result$result.npy" || return
  done
  rm -rf "$found-cpu" "$found-found"
}

# gathered WORLD INTERLEAVE BLOCK STRIDE TYPE DIM...: rows of gathered KV, bit by bit those
# that the CPU finds.
gathered() {
  local name="gathered-w$1-i$2-b$3-s$4-$5-${*:6}-$transport"
  name=${name// /+}
  kv_program "$@" >"$programs/$name.mlir"
  # Of unequal lengths, and a request without tokens of its own rank.
  step "$name" 31,1,64,5 1970,300,0,700
  sed -i "s/64}/$3}/" "$programs/$name.json"
  as_on_cpu "$1" "$name" 1 || return
  note="101 rows of each of $1"
}

# rows_gathered WORLD HEADS DIM TYPE [MOST]: the rows of all ranks, bit by bit those that the CPU
# finds; at most MOST at a time, and those of a request.
rows_gathered() {
  local name="gathered-rows-w$1-h$2-$3-$4-$transport${5:+-most$5}"
  rows_program "${@:1:4}" >"$programs/$name.mlir"
  step "$name" 150,7 0,0
  as_on_cpu "$1" "$name" "$1" ${5:+--max-tokens="$5" --max-requests=1} || return
  note="157 rows of each of $1"
}

# shards_program WORLD HEADS DIM TYPE: rows of shards to all ranks and back, each by a merge of
# what all ranks have alike.
shards_program() {
  local q="tensor<?x$2x$3x$4>" lse="tensor<?x$2xf32>" own='{shardq.split = #shardq.split<@ranks, 0 over "tp">}'
  cat <<MLIR
shardq.mesh @ranks ["tp" = $1]
func.func @back(%x: $q $own, %lse: $lse) -> ($q $own) {
  %all = shardq.gather_rows %x over @ranks "tp" {token_shards} : ($q) -> $q
  %out = shardq.combine_lse %all lse(%lse) over @ranks "tp" {scatter_tokens} : ($q, $lse) -> $q
  return %out : $q
}
MLIR
}

# shards_back WORLD HEADS DIM TYPE: what came back, bit by bit; a power of two ranks.
shards_back() {
  local name="shards-w$1-h$2-$3-$4-$transport"
  shards_program "$@" >"$programs/$name.mlir"
  step "$name" 150,10 0,0
  as_on_cpu "$1" "$name" 1 || return
  note="160 rows on $1 ranks"
}

# same_bits RANKS PROGRAM STEP: keys that are gathered are attended in the order of those that
# one rank has, so results are equal bit by bit.
same_bits() {
  local divided whole
  divided=$(basename "$2" .mlir)-divided-$(basename "$3" .json)
  whole=${divided/divided/whole}
  sed 's/"dcp" = [0-9]* in/"dcp" = 1 in/' "$2" >"$programs/$whole.mlir"
  ranks "$1" "$2" --step="$3" --pipeline="$gather" --output-dir="$logs/data/$divided" || return
  ranks "$1" "$programs/$whole.mlir" --step="$3" --pipeline="$gather" --output-dir="$logs/data/$whole" || return
  cmp "$logs/data/$divided/result0.npy" "$logs/data/$whole/result0.npy" || return
  note="results are equal"
  rm -rf "$logs/data/$divided" "$logs/data/$whole"
}

# both_ways STEP: what arrives directly and through NCCL, bit by bit.
both_ways() {
  local way
  for way in direct nccl; do
    transport=$way ranks 2 "$tp2" --step="$examples/steps/small-$1.json" --shard-q-tokens \
      --output-dir="$logs/data/both-$1-$way" || return
  done
  cmp "$logs/data/both-$1-direct/result0.npy" "$logs/data/both-$1-nccl/result0.npy" || return
  note="results are equal"
  rm -rf "$logs/data/both-$1"-*
}

# mixed_ways NAME RANKS PROGRAM MIXED PIPELINE MIXED_PIPELINE OPTION...: what arrives where all is
# direct, and where NCCL carries some of it, bit by bit.
mixed_ways() {
  local name=$1 count=$2 way result both='^transport direct: .*; nccl .*: the program asks for NCCL for '
  local -A programs_of=([direct]=$3 [mixed]=$4) pipelines=([direct]=$5 [mixed]=$6)
  shift 6
  for way in direct mixed; do
    ranks "$count" "${programs_of[$way]}" --pipeline="${pipelines[$way]}" --output-dir="$logs/data/$name-$way" "$@" || return
  done
  grep -q "$both" "$log" || {
    note="nothing says that both are in use"
    return 1
  }
  for result in "$logs/data/$name-direct"/result*.npy; do
    cmp "$result" "$logs/data/$name-mixed/${result##*/}" || return
  done
  note="results are equal"
  rm -rf "$logs/data/$name"-*
}

# struck FAULT MESSAGE RANKS PROGRAM OPTION...: what rank 1 does in the first run of an
# exchange. Every other rank has to say so, and the tool to end with 1 by itself.
struck() {
  local fault=$1 message=$2 status=0
  shift 2
  SHARDQ_FAULT="rank=1,epoch=1,$fault" ranks "$@" || status=$?
  if ((status != 1)); then
    note="ended with $status, expected 1"
    return 1
  fi
  note=$(grep -E -m 1 "$message" "$log" | cut -c1-110) || {
    note="nothing says '$message'"
    return 1
  }
}

# From auto to NCCL, since the ranks say that they are on two hosts.
hosts_differ() {
  ranks 2 "$tp2" --step="$examples/steps/small-mixed.json" --verify --hosts=a,b || return
  note=$(grep -m 1 '^transport nccl .*are on different hosts' "$log") || {
    note="nothing says that hosts differ"
    return 1
  }
}

# within_hosts PROGRAM ARGUMENT...: on two hosts of two ranks, each with the
# inner axis of the mesh.
within_hosts() {
  ranks 4 "$@" --verify --hosts=a,a,b,b || return
  note=$(grep -m 1 '^transport direct: within each host.*nccl .*are on different hosts' "$log") || {
    note="nothing says that rows stay direct within hosts"
    return 1
  }
}

# sanitized TOOL COMMAND...
sanitized() {
  # As ranks() does, below the sanitizer.
  local real=$shardq_run shardq_run=$programs/sanitized-$1.sh
  printf '#!/bin/sh\nexec %q --tool %s --target-processes all --error-exitcode 9 %q "$@"\n' \
    "$compute_sanitizer" "$1" "$real" >"$shardq_run"
  chmod +x "$shardq_run"
  shift
  "$@" || return
  grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log" || {
    note="the sanitizer has no summary"
    return 1
  }
}

# --- Benchmarks ---------------------------------------------------------------

# hundredths LOG: of a microsecond, that one call took.
hundredths() {
  local text
  text=$(sed -n 's/^one call in a graph: \([0-9]*\)\.\([0-9][0-9]\) us.*/\1\2/p' "$1")
  [[ -n $text ]] && echo $((10#$text))
}

# decimal HUNDREDTHS
decimal() {
  printf '%d.%02d' $(($1 / 100)) $(($1 % 100))
}

# one_more PROGRAM STEP MORE OPTION...: sets `each` to what one op more takes in a graph, in
# hundredths of a microsecond, from PROGRAM-1.mlir with one and PROGRAM-MORE.mlir,
# and `one` and `alone` to what a call with one takes in a graph and by itself. Of
# the options, each op has one. Runs on `world` ranks.
world=2
one_more() {
  local program=$1 step=$2 more=$3 count many code
  shift 3
  for count in 1 "$more"; do
    code=0
    ranks "$world" "$program-$count.mlir" --step="$step" --bench="$replays" "${@:1:count}" >"$log.$count" 2>&1 || code=$?
    cat "$log.$count"
    ((code == 0)) || return $code
  done
  one=$(hundredths "$log.1") && many=$(hundredths "$log.$more") || return 1
  alone=$(sed -n 's/^one call by itself: //p' "$log.1")
  rm -f "$log.1" "$log.$more"
  each=$(((many - one) / (more - 1)))
  if ((each <= 0)); then
    note="$more take no longer than one"
    return 1
  fi
}

# bench_rows OP: rates count what is read and what is written.
bench_rows() {
  local each one alone tenths i options=()
  for i in 0 1 2 3 4; do
    options+=(--input="topk$i=$logs/data/topk.npy")
  done
  [[ $1 == take_rows ]] || options=()
  one_more "$programs/$1" "$programs/rows-8192.json" 5 ${options[@]+"${options[@]}"} || return
  tenths=$((8192 * 2048 * 4 * 2 / each))
  note="$(decimal $each) us, $((tenths / 10)).$((tenths % 10)) GB/s"
}

# bench_exchange ROWS: the time that one more exchange takes in a graph.
bench_exchange() {
  local rows=$1 each one alone bytes tenths
  one_more "$programs/exchanges" "$programs/rows-$rows.json" 9 || return
  # Half of a rank's rows go to the other one. Bytes in 10 ns are tenths of GB/s.
  bytes=$((rows * 64 * 576 * 2 / 2))
  tenths=$((bytes / each))
  note="$(decimal $each) us, $((tenths / 10)).$((tenths % 10)) GB/s (one in a graph $(decimal "$one") us, by itself $alone)"
}

# bench_group gathers|combines ROWS: the same of an exchange of `world` ranks.
bench_group() {
  local rows=$2 each one alone bytes tenths
  one_more "$programs/$1-w$world" "$programs/rows-$rows.json" 9 || return
  # What a rank sends to the others.
  case $1 in
  gathers) bytes=$((rows * 64 / world * 576 * 2 * (world - 1))) ;;
  combines) bytes=$((rows * 64 / world * 520 * 2 * (world - 1))) ;;
  esac
  tenths=$((bytes / each))
  note="$(decimal $each) us, $((tenths / 10)).$((tenths % 10)) GB/s (one in a graph $(decimal "$one") us, by itself $alone)"
}

# bench_kv MIB: a gather of KV of which a rank sends so many MiB to others.
bench_kv() {
  local each one alone bytes tenths
  one_more "$programs/kv-gathers-w$world" "$programs/kv-w$world-$1.json" 9 || return
  bytes=$((kv_blocks * 64 * 576 * 2 * (world - 1)))
  tenths=$((bytes / each))
  note="$(decimal $each) us, $((tenths / 10)).$((tenths % 10)) GB/s remote, $kv_blocks blocks a rank (one in a graph $(decimal "$one") us, by itself $alone)"
}

bench_call() {
  ranks "$@" --bench="$replays" --report="$logs/$name.json" || return
  local time
  time=$(hundredths "$log") || return 1
  note="$(decimal "$time") us"
}

# bench_figures COMMAND...: a program that prints lines of NAME TIME us|ms RATE. They
# stand in the table.
bench_figures() {
  local line figure='^([^ ].*[^ ]) +([0-9.]+ (us|ms)) +(.*[^ ])'
  limited "$@" || return
  note="figures below"
  while IFS= read -r line; do
    [[ ! $line =~ $figure || $line == PASS* ]] ||
      figures+=("$(tr -s ' ' <<<"${BASH_REMATCH[1]}")|$(tr -s ' ' <<<"${BASH_REMATCH[2]}, ${BASH_REMATCH[4]}")")
  done <"$log"
}

# --- All of them --------------------------------------------------------------

figures=()
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

# Steps of equal sizes for one graph: other inputs, counts and gate decisions.
step turns-mixed 1,1,47 4000,4000,3954
step turns-prefill 47,1,1 3954,4000,4000
echo '{"query_lens": [10, 10, 20], "context_lens": [3991, 3991, 3981], "block_size": 64, "padding_rows": 9}' \
  >"$programs/turns-closed.json"
echo '{"query_lens": [2, 2, 2], "context_lens": [3999, 3999, 3999], "block_size": 64, "speculative_tokens": 1, "padding_rows": 43}' \
  >"$programs/turns-decode.json"
echo '{"query_lens": [1, 1, 1], "context_lens": [4000, 4000, 4000], "block_size": 64, "padding_rows": 46}' \
  >"$programs/turns-singles.json"

if wanted runtime; then
  if [[ $target == cpu ]]; then
    skip runtime "needs a GPU"
  elif [[ ! -x $package/CudaRuntimeTests ]]; then
    skip runtime "CudaRuntimeTests is not in the package"
  else
    # A test is mostly the start of its processes, and processes that come to the
    # driver together wait for each other there.
    alone runtime-single 120 runtime_tests '-*Ranks.*'
    for count in ${worlds//,/ }; do
      alone "runtime-direct-$count" 280 runtime_tests "*CudaRanks.*_$count"
      if [[ $no_nccl ]] || ((count > gpus)); then
        skip "runtime-nccl-$count" "${no_nccl:-a GPU for each rank}"
      else
        alone "runtime-nccl-$count" 280 runtime_tests "*NcclRanks.*_$count"
        alone "runtime-mixed-$count" 280 runtime_tests "*MixedRanks.*_${count}_channel_*"
      fi
    done
    if ((gpus > 1)); then
      alone runtime-10000-replays 240 runtime_replays
    else
      skip runtime-10000-replays "needs two GPUs: ranks of one take turns"
    fi
  fi
fi

have_kernels=""
if [[ $target == cpu ]]; then
  have_kernels="needs a GPU"
elif ((!torch)); then
  have_kernels="needs python3 with torch and numpy"
elif ! compgen -G "$package/device/kernels/*.$chip.cubin" >/dev/null; then
  have_kernels="the package has no kernels for $chip"
fi
if wanted kernels; then
  for name in mla idx topk conv exchange group gather local_ draft filter own_ merge weigh sum chunk \
    view unpack packing packed shards; do
    if [[ $have_kernels ]]; then
      skip "kernels-$name" "$have_kernels"
    else
      check "kernels-$name" 300 kernel_checks $name
    fi
  done
fi

if wanted verify; then
  while read -r count program steps; do
    file=$examples/$program.mlir
    [[ ! -f $programs/$program.mlir ]] || file=$programs/$program.mlir
    for name in $steps; do
      check "verify-${program/deepseek-/}-$name" 180 verified "$count" "$file" \
        --step="$examples/steps/small-$name.json"
    done
  done <<'LIST'
2 v32-tp2 open mixed closed-short closed-padding zero-lengths one-token trace-03
4 deepseek-v32-tp4 mixed trace-05
8 deepseek-v32-tp8 open closed-empty-rank trace-03
8 glm5-tp8 open trace-07
8 mixed-step-tp8 speculative closed-decodes
4 two-layers-shared-indices mixed open
2 v32-tp2-dcp2 decode-trace closed-decodes one-token mixed closed-padding zero-lengths
4 v32-tp4-dcp4 decode-trace one-token speculative
4 v32-tp4-dcp2 decode-trace closed-padding
8 deepseek-v32-dcp8-decode decode-trace closed-decodes
2 glm5-tp2-dcp2-mixed mixed open decode-trace speculative zero-lengths closed-padding
2 v32-tp2-dcp2-prefill open mixed trace-03 one-token
4 glm5-tp4-dcp4-mixed mixed speculative trace-05
8 deepseek-v32-dcp8-prefill open trace-03 closed-empty-rank
2 v32-dcp2-tokens decode-trace mixed speculative
4 deepseek-v32-dcp4-tokens decode-trace
2 v32-tp2-dcp2-sinks decode-trace mixed closed-decodes
2 v32-tp2-dcp2-packed decode-trace mixed
2 v32-tp2-dcp2-packed-prefill open mixed
LIST
  # More rows than inboxes hold, in slices; all blocks that the table names.
  check verify-v32-tp2-dcp2-slices 180 verified 2 "$dcp2" --step="$examples/steps/small-decode-trace.json" \
    --pipeline="$dcp" --max-tokens=8
  check verify-v32-dcp2-tokens-slices 180 verified 2 "$shards2" --step="$examples/steps/small-decode-trace.json" \
    --pipeline="$dcp" --max-tokens=8
  check verify-glm5-tp2-dcp2-full 180 verified 2 "$mixed2" --step="$examples/steps/small-mixed.json" \
    --pipeline='builtin.module(shardq-dcp{step=gather blocks=full remarks=false})' --max-kv-tokens=65536
  # Outputs merged by weights and sums.
  check verify-v32-tp2-dcp2-ag_rs 180 verified 2 "$dcp2" --step="$examples/steps/small-decode-trace.json" \
    --pipeline="builtin.module(shardq-dcp{step=decode remarks=false},shardq-select-transport{transport=ag_rs remarks=false})"
  # Outputs whose heads all ranks keep, in halves that travel twice (below, "merged"), or summed.
  for ranks in 2 4; do
    check "verify-v32-pcp$ranks-tp1-all-ag_ar" 180 verified $ranks "$programs/v32-pcp$ranks-tp1-all.mlir" \
      --step="$examples/steps/small-closed-decodes.json" \
      --pipeline="builtin.module(shardq-dcp{step=decode remarks=false},shardq-select-transport{transport=ag_ar remarks=false})"
  done
  # Rows that the step writes, by slots of either table, packed.
  while read -r count interleave blocks steps format; do
    file=$programs/v32-dcp$count-written-$interleave-$blocks.mlir
    written_program "$count" "$interleave" "$blocks" "$format" >"$file"
    for name in ${steps//,/ }; do
      check "verify-v32-dcp$count-written-$interleave-$blocks-$name" 180 verified "$count" "$file" \
        --step="$examples/steps/small-$name.json" --pipeline="$gate"
    done
  done <<'LIST'
2 64 1 mixed,decode-trace 512 x f8E4M3FN, rope = 64, order = scales_rope
4 4 2 speculative,closed-padding 512 x i8, rope = 64, order = rope_scales
8 1 1 decode-trace,open 512 x f8E4M3FN, rope = 64, order = scales_rope
LIST
  # Rows of any step over own keys, or over gathered ones; queries in rows with room for more heads.
  check verify-v32-dcp2-tokens-decode-mixed 180 verified 2 "$shards2" --step="$examples/steps/small-mixed.json" --pipeline="$dcp"
  check verify-v32-dcp2-tokens-gather-mixed 180 verified 2 "$shards2" --step="$examples/steps/small-mixed.json" --pipeline="$gather"
  for name in decode-trace closed-decodes; do
    check "verify-v32-tp2-dcp2-padded-$name" 180 verified 2 "$dcp2" --step="$examples/steps/small-$name.json" --pipeline="$padded"
  done
  # Keys are gathered in every step; and a step that does not fit attends own keys.
  for name in mixed decode-trace; do
    check "verify-glm5-tp2-dcp2-gather-$name" 180 verified 2 "$mixed2" --step="$examples/steps/small-$name.json" \
      --pipeline="$gather"
  done
  # Decode rows over own keys, beside gathered ones.
  for name in mixed speculative; do
    check "verify-glm5-tp2-dcp2-combine-$name" 180 verified 2 "$mixed2" --step="$examples/steps/small-$name.json" \
      --pipeline="$combine"
  done
  check verify-v32-tp2-dcp2-gather-open 180 verified 2 "$prefill2" --step="$examples/steps/small-open.json" --pipeline="$gather"
  check verify-glm5-tp2-dcp2-bits 180 same_bits 2 "$mixed2" "$examples/steps/small-speculative.json"
  check verify-glm5-tp2-dcp2-too-large 180 verified 2 "$mixed2" --step="$examples/steps/small-mixed.json" \
    --max-kv-tokens=1 --max-requests=1
  check verify-glm5-tp2-dcp2-gather-too-large 180 verified 2 "$mixed2" --step="$examples/steps/small-mixed.json" \
    --pipeline="$gather" --max-kv-tokens=1 --max-requests=1
  # Requests in chunks: both forms of each program.
  while read -r count program steps; do
    for name in $steps; do
      check "verify-$program-$name" 180 verified "$count" "$programs/$program.mlir" \
        --step="$examples/steps/small-$name.json" --pipeline="$chunks"
      check "verify-$program-two-calls-$name" 180 verified "$count" "$programs/$program.mlir" \
        --step="$examples/steps/small-$name.json" --pipeline="$two_calls"
    done
  done <<'LIST'
2 v32-pcp2-tp1-dcp1 open mixed closed-decodes one-token zero-lengths closed-padding
4 v32-pcp2-tp2-dcp2 chunked open mixed closed-decodes
4 v32-pcp4-tp1-dcp1 trace-03 mixed
8 v32-pcp4-tp2-dcp2 open closed-decodes
8 v32-pcp2-tp4-dcp2 chunked mixed
8 v32-pcp8-tp1-dcp1 mixed one-token
2 v32-pcp2-tp1-all open mixed
4 v32-pcp2-tp2-all chunked mixed closed-decodes
LIST
  # Twenty prefill requests of a token, which each rank has two rows of.
  step many-requests 3,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 4,0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133
  # Steps that do not fit, by their rows, their requests or their keys: whole rows on each rank.
  for passes in "" "two-calls=true "; do
    for program in v32-pcp2-tp1-dcp1 v32-pcp2-tp1-all; do
      check "verify-$program-${passes:+two-calls-}rows" 180 verified 2 "$programs/$program.mlir" \
        --step="$examples/steps/small-mixed.json" --max-tokens=8 \
        --pipeline="builtin.module(shardq-pcp{${passes}remarks=false},shardq-dcp{remarks=false})"
      check "verify-$program-${passes:+two-calls-}requests" 180 verified 2 "$programs/$program.mlir" \
        --step="$programs/many-requests.json" --max-tokens=23 --max-requests=1 \
        --pipeline="builtin.module(shardq-pcp{${passes}remarks=false},shardq-dcp{remarks=false})"
    done
    check "verify-v32-pcp2-tp1-all-${passes:+two-calls-}keys" 180 verified 2 "$programs/v32-pcp2-tp1-all.mlir" \
      --step="$examples/steps/small-mixed.json" --max-tokens=64 --max-kv-tokens=1 --max-requests=1 \
      --pipeline="builtin.module(shardq-pcp{${passes}remarks=false},shardq-dcp{remarks=false})"
    # Without the gate, in turns.
    check "verify-v32-pcp2-tp1-dcp1-${passes:+two-calls-}turns" 180 verified 2 "$programs/v32-pcp2-tp1-dcp1.mlir" \
      --step="$programs/many-requests.json" --max-tokens=5 --max-requests=1 \
      --pipeline="builtin.module(shardq-pcp{${passes}gate=false remarks=false},shardq-dcp{remarks=false})"
  done
  # Whole rows: merged along both axes.
  for ranks in 2 4; do
    check "verify-v32-pcp2-tp$((ranks / 2))-all-merged" 180 verified $ranks "$programs/v32-pcp2-tp$((ranks / 2))-all.mlir" \
      --step="$examples/steps/small-closed-decodes.json" --pipeline="$dcp"
  done
fi

# Steps of traces with all their tokens, one at a time: the float64 reference wants all cores.
if wanted trace; then
  while read -r count program name passes; do
    file=$examples/$program.mlir
    [[ ! -f $programs/$program.mlir ]] || file=$programs/$program.mlir
    options=()
    [[ $passes == all ]] || options=(--pipeline="${!passes}")
    if [[ $target == cpu && $name != decode-trace ]]; then
      skip "trace-${program/deepseek-/}-$name-${passes/_/-}" "takes too long on CPUs"
    else
      alone "trace-${program/deepseek-/}-$name-${passes/_/-}" 590 verified "$count" "$file" \
        --step="$examples/steps/$name.json" ${options[@]+"${options[@]}"}
    fi
  done <<'LIST'
8 deepseek-v32-dcp8-decode decode-trace all
4 deepseek-v32-dcp4-tokens decode-trace all
4 glm5-tp4-dcp4-mixed mixed-trace all
4 glm5-tp4-dcp4-mixed mixed-trace combine
8 deepseek-v32-dcp8-prefill trace-06 all
8 deepseek-v32-dcp8-prefill trace-06 gate
4 v32-pcp2-tp2-dcp2 trace-09 chunks
4 v32-pcp2-tp2-dcp2 trace-09 two_calls
LIST
  if [[ $target == cpu ]]; then
    skip trace-v32-dcp8-prefill-trace-06-bits "takes too long on CPUs"
  else
    alone trace-v32-dcp8-prefill-trace-06-bits 590 same_bits 8 "$examples/deepseek-v32-dcp8-prefill.mlir" \
      "$examples/steps/trace-06.json"
  fi
fi

if wanted roundtrip; then
  heads=(6 8 16 64)
  decodes=(0 3 25)
  i=0
  for count in 2 4 8; do
    for dim in 576 512; do
      for type in bf16 f16 f32 f8E4M3FN; do
        # Each number of heads and of decodes with each number of ranks.
        h=${heads[(i + i / 4) % 4]} d=${decodes[i % 3]}
        check "roundtrip-w$count-h$h-$dim-$type-d$d" 120 round_trip "$count" "$h" "$dim" "$type" "$d"
        i=$((i + 1))
      done
    done
    # As many rows as the plan holds.
    check "roundtrip-w$count-long" 120 round_trip "$count" 6 576 bf16 0 "8191 0 1"
    check "roundtrip-w$count-two-sources" 120 two_sources "$count" 8 512 64 bf16
    check "gathered-w$count-i64-bf16" 120 gathered "$count" 64 64 64 bf16 576
    check "gathered-w$count-i4-two-sources" 120 gathered "$count" 4 16 20 bf16 512 64
    check "gathered-w$count-i1-odd" 120 gathered "$count" 1 3 5 f32 7
    check "gathered-rows-w$count-bf16" 120 rows_gathered "$count" 5 24 bf16
    check "gathered-rows-w$count-f32-odd" 120 rows_gathered "$count" 1 7 f32
    check "gathered-rows-w$count-slices" 120 rows_gathered "$count" 3 16 f32 40
    check "shards-w$count-bf16" 120 shards_back "$count" 16 512 bf16
    check "shards-w$count-f32-odd" 120 shards_back "$count" 3 7 f32
    check "gathered-w$count-i16-bytes" 120 gathered "$count" 16 8 8 f8E4M3FN 656
  done
fi

if wanted graph; then
  if [[ $target == cpu ]]; then
    skip graph "needs a GPU"
  else
    repeat=$((gpus > 1 ? 300 : 30))
    for name in open mixed closed-decodes; do
      check "graph-tokens-$name" 180 ranks 2 "$tp2" --step="$examples/steps/small-$name.json" \
        --shard-q-tokens --graph --repeat=$repeat
    done
    # Two slots in turn, with steps of other counts; layers back to back.
    check slots-tokens 180 ranks 2 "$tp2" --step="$programs/turns-mixed.json" --next-step="$programs/turns-prefill.json" \
      --shard-q-tokens --slots=2 --repeat=$repeat
    check slots-layers 180 verified 4 "$examples/two-layers-shared-indices.mlir" \
      --step="$examples/steps/small-mixed.json" --slots=2 --repeat=4
    check graph-turns 240 ranks 2 "$tp2" --step="$programs/turns-mixed.json" --next-step="$programs/turns-prefill.json" \
      --next-step="$programs/turns-closed.json" --shard-q-tokens --graph --repeat=$((gpus > 1 ? 10000 : 60))
    # Calls between the replays go on with the same epochs.
    for name in decode-trace closed-decodes; do
      check "graph-dcp-$name" 180 ranks 2 "$dcp2" --step="$examples/steps/small-$name.json" --pipeline="$dcp" \
        --graph --eager-every=3 --repeat=$repeat
    done
    check graph-dcp2-tokens 180 ranks 2 "$shards2" --step="$examples/steps/small-decode-trace.json" --pipeline="$dcp" \
      --graph --repeat=$repeat
    check graph-dcp4-tokens 180 ranks 4 "$examples/deepseek-v32-dcp4-tokens.mlir" \
      --step="$examples/steps/small-decode-trace.json" --pipeline="$dcp" --graph --repeat=$repeat
    check graph-dcp2-tokens-gate 180 ranks 2 "$shards2" --step="$examples/steps/small-mixed.json" --pipeline="$gate" \
      --graph --repeat=$repeat
    check graph-dcp2-sinks 180 ranks 2 "$sinks2" --step="$examples/steps/small-decode-trace.json" --pipeline="$dcp" \
      --graph --repeat=$repeat
    check graph-dcp2-written 180 ranks 2 "$written2" --step="$examples/steps/small-decode-trace.json" --pipeline="$gate" \
      --graph --eager-every=4 --repeat=$repeat
    check graph-dcp2-padded 180 ranks 2 "$dcp2" --step="$examples/steps/small-decode-trace.json" --pipeline="$padded" \
      --graph --repeat=$repeat
    check graph-dcp8-decode-trace 180 ranks 8 "$examples/deepseek-v32-dcp8-decode.mlir" \
      --step="$examples/steps/small-decode-trace.json" --pipeline="$dcp" --graph --eager-every=4 --repeat=30
    # Keys are gathered in two of three turns, by another table each time.
    check graph-gather-turns 240 ranks 2 "$mixed2" --step="$programs/turns-mixed.json" --next-step="$programs/turns-prefill.json" \
      --next-step="$programs/turns-decode.json" --pipeline="$gate" --graph --eager-every=5 --repeat=$((gpus > 1 ? 3000 : 60))
    check graph-gather-tokens-turns 240 ranks 2 "$prefill2" --step="$programs/turns-mixed.json" \
      --next-step="$programs/turns-prefill.json" --shard-q-tokens --graph --eager-every=7 --repeat=$repeat
    check graph-gather-combine 180 ranks 2 "$mixed2" --step="$programs/turns-mixed.json" \
      --next-step="$programs/turns-prefill.json" --pipeline="$combine" --graph --repeat=$repeat
    check graph-gather-open 180 ranks 2 "$prefill2" --step="$examples/steps/small-open.json" --pipeline="$gather" \
      --graph --repeat=$repeat
    # Chunks of other requests in each turn, and a turn without prefill.
    for way in chunks two_calls; do
      check "graph-${way/_/-}-turns" 240 ranks 2 "$chunks2" --step="$programs/turns-mixed.json" \
        --next-step="$programs/turns-prefill.json" --next-step="$programs/turns-singles.json" --pipeline="${!way}" \
        --graph --repeat=$((gpus > 1 ? 3000 : 60))
      check "graph-pcp2-dcp2-${way/_/-}-turns" 240 ranks 4 "$programs/v32-pcp2-tp2-dcp2.mlir" \
        --step="$programs/turns-mixed.json" --next-step="$programs/turns-prefill.json" \
        --next-step="$programs/turns-singles.json" --pipeline="${!way}" --graph --repeat=$((gpus > 3 ? 300 : 30))
      check "graph-pcp4-dcp2-${way/_/-}-turns" 240 ranks 8 "$programs/v32-pcp4-tp2-dcp2.mlir" \
        --step="$programs/turns-mixed.json" --next-step="$programs/turns-prefill.json" \
        --pipeline="${!way}" --graph --repeat=30
    done
    check graph-heads-mixed 180 ranks 2 "$tp2" --step="$examples/steps/small-mixed.json" --graph --repeat=$repeat
  fi
fi

# Each with the fault of an exchange, whose name is behind it.
tokens_fault=(2 "$tp2" --step="$examples/steps/small-open.json" --shard-q-tokens)
# Exchanges 0 and 1 are those of larger steps.
step few-decodes 2,1,2 90,300,64
decode_fault=(2 "$dcp2" --step="$programs/few-decodes.json" --pipeline="$dcp")
step few-tokens 9,5,1 30,0,70
gather_fault=(2 "$prefill2" --step="$programs/few-tokens.json" --pipeline="$gather")
chunks_fault=(2 "$chunks2" --step="$programs/few-tokens.json" --pipeline="$chunks")
step even-decodes 2,2,2 90,300,64
shards_fault=(2 "$shards2" --step="$programs/even-decodes.json" --pipeline="$dcp")

# fault PROGRAM ACTION NUMBER EXCHANGE [NEXT]
fault() {
  local message at=$3
  local -n program=$1_fault
  case $2 in
  kill) message='^rank 0: peer dead: rank 1 died' ;;
  stall) message="^rank 0: deadline: .*waited [0-9.]+ s for rank 1 .*$4 exchange $at of" ;;
  # The rank itself may be the first to give up, or be done.
  drop-flag) message="^rank 0: (deadline|peer left): .*rank 1.* .*$4 exchange $at of" ;;
  wrong-rows) message="^rank 0: wrong rows: rank 1 pushed [0-9]+ rows where rank 0 expected [0-9]+ .*$4 exchange $at of" ;;
  wrong-operation) message="^rank 0: wrong operation: rank 1 ran $5 .*rank 0 expected $4 exchange $at of" ;;
  esac
  alone "fault-$1-$2" 40 struck "operation=$at,action=$2" "$message" "${program[@]}"
}

# One at a time: what they wait for is a deadline.
if wanted faults; then
  alone fault-kill 40 struck operation=0,action=kill '^rank 0: peer dead: rank 1 died' "${tokens_fault[@]}"
  alone fault-late 40 struck operation=0,action=stall '^rank 0: deadline: .*waited [0-9.]+ s for rank 1' "${tokens_fault[@]}"
  fault decode kill 2 gather_heads
  fault decode stall 3 scatter_heads
  fault decode drop-flag 2 gather_heads
  fault decode wrong-rows 3 scatter_heads
  fault decode wrong-operation 2 gather_heads 'scatter_heads exchange 3'
  fault gather kill 0 gather_rows
  fault gather stall 0 gather_rows
  fault gather wrong-rows 0 gather_rows
  fault gather wrong-operation 0 gather_rows 'operation 1'
  for action in kill stall drop-flag wrong-rows; do
    fault chunks $action 1 gather_rows
  done
  fault chunks wrong-operation 1 gather_rows 'gather_rows exchange 2'
  # Behind the exchanges of its slices.
  fault shards stall 5 scatter_rows
  fault shards wrong-rows 3 gather_rows
fi

if wanted nccl; then
  wait
  if [[ $no_nccl ]]; then
    skip nccl "$no_nccl"
  else
    transport=nccl
    for name in open mixed closed-decodes; do
      check "nccl-verify-$name" 240 verified 2 "$tp2" --step="$examples/steps/small-$name.json"
      check "nccl-graph-$name" 180 ranks 2 "$tp2" --step="$examples/steps/small-$name.json" \
        --shard-q-tokens --graph --repeat=100
    done
    for name in open mixed; do
      check "nccl-equals-direct-$name" 240 both_ways "$name"
    done
    check nccl-verify-dcp2 240 verified 2 "$dcp2" --step="$examples/steps/small-decode-trace.json"
    check nccl-verify-dcp2-tokens 240 verified 2 "$shards2" --step="$examples/steps/small-decode-trace.json" --pipeline="$dcp"
    check nccl-verify-dcp2-padded 240 verified 2 "$dcp2" --step="$examples/steps/small-decode-trace.json" --pipeline="$padded"
    check nccl-graph-dcp2-tokens 180 ranks 2 "$shards2" --step="$examples/steps/small-decode-trace.json" \
      --pipeline="$dcp" --graph --repeat=100
    check nccl-graph-dcp2 180 ranks 2 "$dcp2" --step="$examples/steps/small-decode-trace.json" \
      --pipeline="$dcp" --graph --repeat=100
    check nccl-verify-glm5-tp2-dcp2-mixed 240 verified 2 "$mixed2" --step="$examples/steps/small-mixed.json"
    check nccl-graph-gather 180 ranks 2 "$mixed2" --step="$examples/steps/small-mixed.json" --pipeline="$gate" --graph \
      --repeat=100
    check nccl-verify-pcp2 240 verified 2 "$chunks2" --step="$examples/steps/small-mixed.json"
    check nccl-graph-pcp2 180 ranks 2 "$chunks2" --step="$programs/turns-mixed.json" \
      --next-step="$programs/turns-prefill.json" --pipeline="$chunks" --graph --repeat=100
    for count in 2 3 4 8; do
      ((count <= gpus)) || continue
      check "nccl-gathered-w$count-i64-bf16" 120 gathered "$count" 64 64 64 bf16 576
      check "nccl-gathered-w$count-i1-odd" 120 gathered "$count" 1 3 5 f32 7
      check "nccl-shards-w$count-bf16" 120 shards_back "$count" 16 512 bf16
      check "nccl-gathered-rows-w$count-bf16" 120 rows_gathered "$count" 5 24 bf16
      check "nccl-roundtrip-w$count-h16-576-bf16-d3" 120 round_trip "$count" 16 576 bf16 3
      check "nccl-roundtrip-w$count-h1-512-f32-d0" 120 round_trip "$count" 1 512 f32 0
    done
    wait
    alone nccl-fault-kill 40 struck operation=0,action=kill '^rank 0: peer dead: rank 1 died' "${tokens_fault[@]}"
    alone nccl-fault-late 40 struck operation=0,action=stall '^rank 0: deadline: .*waited [0-9.]+ s for rank 1' \
      "${tokens_fault[@]}"
    transport=auto
    alone nccl-two-hosts 240 hosts_differ
    # Heads to tokens straight into peers' memory, and back by NCCL.
    for count in 2 4 8; do
      ((count <= gpus)) || continue
      {
        begin_program "$count" 16 576 bf16 0 'tensor<?x16x576xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">}'
        for i in 1 2 3; do
          exchange "mine$i" "$( ((i == 1)) && echo q || echo "back$((i - 1))")" heads_to_tokens "$count" 16 576 bf16
          exchange "back$i" "mine$i" tokens_to_heads "$count" 16 576 bf16
        done
        echo "  return %back3 : tensor<?x16x576xbf16>"
        echo "}"
      } >"$programs/ways-$count.mlir"
      sed '/tokens_to_heads/s/over @ranks "tp"/& {transport = #shardq.transport<nccl>}/' "$programs/ways-$count.mlir" \
        >"$programs/mixed-$count.mlir"
      step "mixed-$count" 150,7,90,31 30,0,70,9 0
      check "nccl-mixed-$count" 240 mixed_ways "mixed-$count" "$count" "$programs/ways-$count.mlir" \
        "$programs/mixed-$count.mlir" "$on_buffers" "$on_buffers" --step="$programs/mixed-$count.json"
      check "nccl-mixed-graph-$count" 180 ranks "$count" "$programs/mixed-$count.mlir" \
        --step="$programs/mixed-$count.json" --pipeline="$on_buffers" --graph --repeat=100
    done
    if ((gpus > 3)); then
      # Chunks over two hosts, heads and KV within each.
      two_hosts=${chunks/%)/,shardq-select-transport{host-ranks=2 remarks=false\})}
      chunks4=$programs/v32-pcp2-tp2-dcp2.mlir
      check nccl-mixed-pcp2-dcp2 240 mixed_ways mixed-pcp2-dcp2 4 "$chunks4" "$chunks4" "$chunks" "$two_hosts" \
        --step="$examples/steps/small-mixed.json"
      check nccl-mixed-verify-pcp2-dcp2 240 verified 4 "$chunks4" --step="$examples/steps/small-mixed.json" \
        --pipeline="$two_hosts"
      check nccl-hosts-pcp2-dcp2 240 within_hosts "$chunks4" --step="$examples/steps/small-mixed.json" --pipeline="$chunks"
      check nccl-mixed-graph-pcp2-dcp2 240 ranks 4 "$chunks4" --step="$programs/turns-mixed.json" \
        --next-step="$programs/turns-prefill.json" --pipeline="$two_hosts" --graph --repeat=100
    fi
    wait
    mixed_fault=(2 "$programs/mixed-2.mlir" --step="$programs/mixed-2.json" --pipeline="$on_buffers")
    for at in 0 1; do
      alone "nccl-mixed-fault-kill-$at" 40 struck operation=$at,action=kill '^rank 0: peer dead: rank 1 died' "${mixed_fault[@]}"
      alone "nccl-mixed-fault-late-$at" 40 struck operation=$at,action=stall \
        "^rank 0: deadline: .*waited [0-9.]+ s for rank 1 .* exchange $at of" "${mixed_fault[@]}"
    done
  fi
fi

if wanted sanitizer; then
  compute_sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
  if [[ $target == cpu ]]; then
    skip sanitizer "needs a GPU"
  elif ((!sanitizer)); then
    skip sanitizer "--no-sanitizer"
  elif [[ ! -x $compute_sanitizer ]]; then
    skip sanitizer "no compute-sanitizer"
  else
    for tool in memcheck racecheck; do
      alone sanitizer-$tool 120 sanitized $tool round_trip 2 8 512 bf16 3
      alone sanitizer-$tool-attention 240 sanitized $tool ranks 2 "$tp2" \
        --step="$examples/steps/small-one-token.json" --shard-q-tokens
      alone sanitizer-$tool-decode 240 sanitized $tool ranks 2 "$dcp2" \
        --step="$examples/steps/small-one-token.json" --pipeline="$dcp"
      alone sanitizer-$tool-gather 240 sanitized $tool ranks 2 "$mixed2" \
        --step="$examples/steps/small-one-token.json" --pipeline="$gather"
      alone sanitizer-$tool-chunks 240 sanitized $tool ranks 2 "$chunks2" \
        --step="$examples/steps/small-one-token.json" --pipeline="$chunks"
    done
  fi
fi
wait

bench_or() {
  if ((!bench)); then
    skip "$1" "--no-bench"
  elif [[ $target == cpu ]]; then
    skip "$1" "needs a GPU"
  else
    return 0
  fi
  return 1
}

if wanted bench && bench_or bench; then
  if ((gpus == 1)); then
    echo "one GPU: ranks share it, and benchmarks take turns of its scheduler"
    replays=$((replays < 10 ? replays : 10))
  fi
  for count in 1 9; do
    exchanges $count >"$programs/exchanges-$count.mlir"
  done
  # Two tokens: what signal and wait take.
  for rows in 2 256 1024 4096 16384; do
    step "rows-$rows" "$rows" 0
    alone "exchange-$rows" 240 bench_exchange "$rows"
  done
  for rows in 1 8 32 64 128; do
    step "rows-$rows" "$rows" 0
  done
  # Two, and as many as there are.
  for world in 2 4 8; do
    ((world == 2 || (world <= gpus && 2 * world > gpus))) || continue
    for op in combines gathers; do
      for count in 1 9; do
        $op $world $count >"$programs/$op-w$world-$count.mlir"
      done
      for rows in 1 8 32 64 128; do
        alone "${op%s}-w$world-$rows" 240 bench_group $op "$rows"
      done
    done
  done
  # Of KV a rank sends so many MiB to all others together.
  for world in 2 4 8; do
    ((world == 2 || (world <= gpus && 2 * world > gpus))) || continue
    for count in 1 9; do
      kv_gathers $world $count >"$programs/kv-gathers-w$world-$count.mlir"
    done
    for size in 4 16 64; do
      kv_blocks=$((size * 1048576 / (64 * 576 * 2) / (world - 1)))
      step "kv-w$world-$size" 8 $((kv_blocks * 64 * world - 8))
      alone "kv-gather-w$world-${size}MiB" 240 bench_kv $size
    done
  done
  world=2
  if [[ $no_nccl ]]; then
    skip nccl-exchange "$no_nccl"
  else
    transport=nccl
    kv_blocks=$((64 * 1048576 / (64 * 576 * 2)))
    alone nccl-kv-gather-64MiB 240 bench_kv 64
    for rows in 2 1024 16384; do
      # In a graph, with buffers for these rows, and thus of these rows.
      alone "nccl-exchange-$rows" 240 bench_exchange "$rows"
    done
    transport=auto
  fi
  random_array "$logs/data/topk.npy" '<i4' '8192, 2048' $((8192 * 2048 * 4))
  for op in convert_indices filter_indices gathered_slots take_rows; do
    for count in 1 5; do
      rows_of $op $count >"$programs/$op-$count.mlir"
    done
    step rows-8192 8192 24576
    alone "$op-8192x2048" 240 bench_rows $op
  done
  if ((gpus < 2)); then
    skip push-ways "needs two GPUs"
  elif [[ ! -x $package/PushBenchmark ]]; then
    skip push-ways "PushBenchmark is not in the package"
  else
    alone push-ways 120 bench_figures "$package/PushBenchmark"
  fi
  step prefill 4096 28672
  step chunk 256 32512
  step decode 1,1,1,1,1,1,1,1 4000,4000,4000,4000,4000,4000,4000,4000
  for name in prefill decode; do
    # Few of the long ones: a call takes milliseconds.
    own=$replays
    [[ $name == decode || $replays -le 10 ]] || replays=10
    alone "v32-tp2-$name-heads" 200 bench_call 2 "$tp2" --step="$programs/$name.json"
    alone "v32-tp2-$name-tokens" 200 bench_call 2 "$tp2" --step="$programs/$name.json" --shard-q-tokens
    replays=$own
  done
  alone v32-tp2-dcp2-decode 200 bench_call 2 "$dcp2" --step="$programs/decode.json" --pipeline="$dcp"
  own=$replays
  replays=$((replays < 10 ? replays : 10))
  alone v32-tp2-dcp2-prefill-gather 200 bench_call 2 "$prefill2" --step="$programs/prefill.json" --pipeline="$gate"
  # Few new tokens on much context: the gather is more of it.
  for overlap in true false; do
    alone v32-tp2-dcp2-chunk-gather-overlap-$overlap 200 bench_call 2 "$prefill2" --step="$programs/chunk.json" --pipeline="$gate" \
      --overlap=$overlap
  done
  alone v32-tp2-dcp2-prefill-gather-line 200 bench_call 2 "$prefill2" --step="$programs/prefill.json" --pipeline="$gate" --overlap=false
  alone v32-tp2-dcp2-prefill-gather-tokens 200 bench_call 2 "$prefill2" --step="$programs/prefill.json" --shard-q-tokens
  replays=$own
  if [[ $have_kernels ]]; then
    skip kernel-times "$have_kernels"
  else
    alone kernel-times 240 bench_figures python3 -B "$package/device/kernels_check.py" \
      "$package/device/kernels" --chip "$chip" --only @none
  fi
fi

if wanted peers && bench_or peers; then
  if [[ -z $peers ]]; then
    skip peers "no --peers"
  elif [[ ! -f $peers/exchange_peers.py ]]; then
    skip peers "no exchange_peers.py in $peers"
  elif ((!torch || gpus < 2)); then
    skip peers "needs torch and two GPUs"
  else
    # Two, as above: with more, heads a rank would be fewer.
    alone peers 300 bench_figures env CUDA_VISIBLE_DEVICES="$(cut -d, -f1-2 <<<"$CUDA_VISIBLE_DEVICES")" \
      python3 -B "$peers/exchange_peers.py" --graphs
  fi
fi
wait

# --- The table ----------------------------------------------------------------

passed=0
failed=0
skipped=0
table=$logs/table.txt
{
  printf '| %-42s | %-6s | %7s | %s |\n' what result seconds figures
  printf '| --- | --- | ---: | --- |\n'
  for file in "$logs"/results/*; do
    [[ -f $file ]] || continue
    IFS=$'\t' read -r result name took note <"$file"
    case $result in
    pass) passed=$((passed + 1)) ;;
    skip) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '| %-42s | %-6s | %5d.%d | %s |\n' "$name" "$result" \
      $((took / 1000)) $((took % 1000 / 100)) "${note//|/ }"
  done
  for figure in ${figures[@]+"${figures[@]}"}; do
    printf '| %-42s | %-6s | %7s | %s |\n' "${figure%%|*}" "" "" "${figure#*|}"
  done
  # A check that left no result has failed.
  lost=$((number - passed - failed - skipped))
  failed=$((failed + lost))
  ((lost == 0)) || echo "$lost checks left no result"
} >"$table"
echo
cat "$table"
echo
echo "$passed passed, $failed failed, $skipped skipped in $((SECONDS - begin_all)) s; logs: $logs" |
  tee -a "$table"
((failed == 0))
