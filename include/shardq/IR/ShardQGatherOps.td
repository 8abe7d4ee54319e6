//===- ShardQGatherOps.td - Level 2: gathered rows and KV --*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQGATHEROPS
#define SHARDQ_IR_SHARDQGATHEROPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_GatherRowsOp : ShardQ_TwoFormOp<"gather_rows", [
    AttrSizedOperandSegments, ShardQ_CollectiveOpInterface] # ShardQ_OnAxis> {
  let summary = "the rows of all ranks of a group, on each of them";
  let description = [{
    Sources `[T, d]` or `[T, H, d]` in one part or two, the result `[N*T, sum of d]` or `[N*T, H, sum of d]`: row
    `r*T + t` is row `t` of member `r`, of both parts together. `T` is the same on all ranks. The result is
    where the members write, which its consumer reads in place.

    `token_shards` says that the sources are shards of one step's rows (`tokens = contiguous`), so that the result has
    the rows of a step and not of one for each rank, which its inbox is planned for.

    ```
      rank 0    rank 1               rank 0    rank 1
      +----+    +----+               +----+    +----+
      | a0 |    | a1 |               | a0 |    | a0 |
      | b0 |    | b1 |      ---->    | b0 |    | b0 |
      +----+    +----+               | a1 |    | a1 |
                                     | b1 |    | b1 |
                                     +----+    +----+
    ```

    Collective: see `exchange`.

    ```mlir
    shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
    func.func @gather(%kv: tensor<?x576xbf16>) -> tensor<?x576xbf16> {
      %all = shardq.gather_rows %kv over @ranks "pcp" : (tensor<?x576xbf16>) -> tensor<?x576xbf16>
      return %all : tensor<?x576xbf16>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - there are one or two sources, which agree in all dimensions but the last
    - sources and result have one element type (bf16, f16, f32, i8, f8E4M3FN, f8E5M2, i32 or i64), one view and, behind
      dimension 0, one static shape, but for the last dimension, of which the result has those of all sources together
    - the result has `N` times the rows
    - the destination of the buffer form is in symmetric memory of the mesh
    - `transport`, where chosen, is `direct` or `nccl`
  }];
  let arguments = (ins Variadic<ShardQ_Shaped<ShardQ_GatheredElements, [2, 3]>>:$sources,
                       Variadic<MemRefRankOf<ShardQ_GatheredElements, [2, 3]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis,
                       OptionalAttr<ShardQ_TransportAttr>:$transport, UnitAttr:$token_shards);
  let results = (outs Variadic<TensorRankOf<ShardQ_GatheredElements, [2, 3]>>:$results);
  let assemblyFormat = [{
    $sources `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    Direction getDirection() { return Direction::GatherRows; }
    MemRefType getInboxType() { return ::llvm::cast<MemRefType>(getOuts().front().getType()); }
  }];
}

def ShardQ_GatherBlocksOp : ShardQ_TwoFormOp<"gather_blocks",
    [AttrSizedOperandSegments] # ShardQ_OnAxis> {
  let summary = "which KV blocks a gather for whole requests moves";
  let description = [{
    `table` `[R, W]` has the blocks of this rank's tokens, `lengths` `[R]` the context plus new
    tokens of each request over all ranks. Gathered are the columns that hold tokens on rank 0,
    which has the most (`local_lengths`), but neither `null_block` nor negative entries, nor, where `pool`
    says how many blocks the caches have, entries from `pool` on: attention skips the keys of slots that are not
    in the cache, and gathered they would be rows of zeros.

    - `blocks` `[R*W]`: the gathered blocks, ascending, each once; behind them -1
    - `inverse` `[R, W]`: where each column's block stands among them; -1 for a column that is not
      gathered
    - `count` `[1]`: their number, `M`

    ```
      table   1 2 3 4      blocks   1 2 3 4 5 6 -1 -1     count 6
              5 6 1 2      inverse  0 1 2 3 / 4 5 0 1
    ```

    With `full`, sizes follow from the table's alone, as graphs that are captured once and run with other steps want
    it: every entry is gathered, whatever the lengths and `null_block` say, none is left out as a repetition, and
    `count` is `R*W`. Entry `(i, j)` stands at `i*W + j`; negative ones, and those from `pool` on, hold rows of zeros there, and
    have -1 in `inverse`.

    ```
      table   0 1      blocks   0 1 2 3          count 4
              2 3      inverse  0 1 / 2 3
    ```

    All ranks gather alike: the table and `pool` are the same on each member of the group, as they are where
    one scheduler gives out blocks of `N * block_size` tokens. Where they are not, the counts
    differ and the gather is an error of the runtime, or the rows are not those that
    `gathered_slots` means.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @blocks(%table: tensor<?x?xi32>, %seq_lens: tensor<?xi32>, %pool: index)
        -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>) {
      %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%seq_lens) pool(%pool) over @ranks "dcp"
          {block_size = 64 : i64, interleave = 64 : i64}
          : (tensor<?x?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)
      return %blocks, %inverse, %count : tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `table` and `lengths` agree in requests; `inverse` has the shape of `table`
    - `blocks` has an entry for each of the table's, `count` has one
    - `table`, `blocks` and `inverse` are no views
    - `interleave` and `block_size` are positive, and one is a multiple of the other
  }];
  let arguments = (ins ShardQ_IntMatrix:$table, ShardQ_IntVector:$lengths,
                       Optional<Index>:$pool, Variadic<MemRefRankOf<[I32], [1, 2]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I64Attr:$interleave,
                       I64Attr:$block_size, DefaultValuedAttr<I32Attr, "0">:$null_block,
                       UnitAttr:$full);
  let results = (outs Variadic<TensorRankOf<[I32], [1, 2]>>:$results);
  let assemblyFormat = [{
    $table `lengths` `(` $lengths `)` (`pool` `(` $pool^ `)`)? `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_GatherKvStartOp : ShardQ_Op<"gather_kv_start", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<ConditionallySpeculatable>] # ShardQ_OnAxis> {
  let summary = "begins to gather the KV rows of a group";
  let description = [{
    Sends the rows of the first `count[0]` of `blocks` to every member of the group: row `s` of
    block `b` is row `b * block_stride_rows + s` of the sources, `0 <= s < block_size`. Sources `[S, d]`
    in two parts (nope, rope) travel as one. Rows outside the sources are 0. A negative count is an error of the
    runtime, and nothing travels.

    The handle is what `gather_kv_finish` takes. Between the two the rows are on their way, so
    that whatever stands there overlaps with it; the sources are not written there.

    ```
      start ------------ rows travel ------------ finish --- attention
              indexer, top-k, other exchanges
    ```

    Collective: see `exchange`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @gather(%kv: tensor<?x576xbf16>, %blocks: tensor<?xi32>, %count: tensor<1xi32>)
        -> tensor<?x576xbf16> {
      %handle = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "dcp"
          {block_size = 64 : i64}
          : (tensor<?x576xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
      %all = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x576xbf16>
      return %all : tensor<?x576xbf16>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - there are one or two sources; they agree in rows and element type; they and `blocks` are no views
    - dimensions are static
    - all operands are tensors, or all are buffers
    - `count` has one entry
    - `block_size` is positive, `block_stride_rows` (default `block_size`) not below it
    - the handle has one use, a `gather_kv_finish` behind it in its block
    - no other gather starts between the two
    - `transport`, where chosen, is `direct` or `nccl`
  }];
  let arguments = (ins Variadic<ShardQ_Shaped<ShardQ_MovedElements, [2]>>:$sources,
                       ShardQ_IntVector:$blocks, ShardQ_IntVector:$count,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I64Attr:$block_size,
                       OptionalAttr<I64Attr>:$block_stride_rows,
                       OptionalAttr<ShardQ_TransportAttr>:$transport);
  let results = (outs ShardQ_KvGather:$handle);
  let assemblyFormat = [{
    `(` $sources `)` `blocks` `(` $blocks `,` $count `)` `over` $mesh $axis attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getBlockStride() { return getBlockStrideRows().value_or(getBlockSize()); }
    bool isOnBuffers() { return ::llvm::isa<MemRefType>(getBlocks().getType()); }
    /// Where the gather ends; null where nothing takes the handle.
    GatherKvFinishOp getFinish();
    /// Rows that each rank sends to each, as an index value.
    Value createRows(OpBuilder &builder);
  }];
}

def ShardQ_GatherKvFinishOp : ShardQ_TwoFormOp<"gather_kv_finish", [
    ShardQ_CollectiveOpInterface]> {
  let summary = "the gathered KV rows of a group";
  let description = [{
    Waits for the rows of every member. The result `[N*M*B, D]`, with `N` ranks, `M` gathered blocks
    of `B` rows and `D` the dimensions of all sources together, has rank after rank: row `s` of the
    `j`-th block of rank `r` is `(r*M + j)*B + s`, which `gathered_slots` finds. The result is
    where the members write, which its consumer reads in place.

    Collective: see `exchange`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @gather(%nope: tensor<?x512xbf16>, %rope: tensor<?x64xbf16>, %blocks: tensor<?xi32>,
                      %count: tensor<1xi32>) -> tensor<?x576xbf16> {
      %handle = shardq.gather_kv_start(%nope, %rope) blocks(%blocks, %count) over @ranks "dcp"
          {block_size = 64 : i64, block_stride_rows = 70 : i64}
          : (tensor<?x512xbf16>, tensor<?x64xbf16>, tensor<?xi32>, tensor<1xi32>) -> !shardq.kv_gather
      %all = shardq.gather_kv_finish %handle : (!shardq.kv_gather) -> tensor<?x576xbf16>
      return %all : tensor<?x576xbf16>
    }
    ```

    **Constraints:**
    - the handle comes from a `gather_kv_start` of the same block, of the same form
    - result and sources have one element type; the result has the dimensions of all of them together
    - the result's rows are dynamic, and it is no view
    - the destination of the buffer form is in symmetric memory of the mesh
  }];
  let arguments = (ins ShardQ_KvGather:$handle,
                       Variadic<MemRefRankOf<ShardQ_MovedElements, [2]>>:$outs);
  let results = (outs Variadic<TensorRankOf<ShardQ_MovedElements, [2]>>:$results);
  let assemblyFormat = [{
    $handle (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    GatherKvStartOp getStart();
    FlatSymbolRefAttr getMeshAttr();
    StringAttr getAxisAttr();
    Direction getDirection() { return Direction::GatherRows; }
    // The start's.
    TransportAttr getTransportAttr();
    void setTransportAttr(TransportAttr transport);
    MemRefType getInboxType() { return ::llvm::cast<MemRefType>(getOuts().front().getType()); }
  }];
}

def ShardQ_GatheredSlotsOp : ShardQ_TwoFormOp<"gathered_slots", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>] # ShardQ_OnAxis> {
  let summary = "request-relative positions to rows of gathered KV";
  let description = [{
    With `N` the axis size, `I` the interleave and `B` the block size, the token at position `t` is
    kept by `owner = (t / I) % N` as its token `l = (t / (N*I)) * I + t % I`. Its slot is
    `(owner * count[0] + inverse[req[i], l / B]) * B + l % B`, which is right for every interleave. A negative
    position, one whose request or block is outside `inverse`, and one whose block is not
    gathered has -1, as has a slot that the result type cannot hold. Slots stand in the columns of
    their positions. The optional second result counts those of each row that are not -1.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @slots(%topk: tensor<?x2048xi32>, %inverse: tensor<?x?xi32>, %count: tensor<1xi32>,
                     %req: tensor<?xi32>) -> tensor<?x2048xi32> {
      %slots = shardq.gathered_slots %topk blocks(%inverse, %count) rows(%req) over @ranks "dcp"
          {block_size = 64 : i64, interleave = 4 : i64}
          : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<1xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
      return %slots : tensor<?x2048xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `indices`, `req` and the results agree in rows; `indices` and the slots in width, which is not 0
    - there are one or two results; slots are i32 or i64, valid counts i32
    - `inverse` and the slots are no views
    - `count` has one entry
    - `interleave` and `block_size` are positive, and one is a multiple of the other
  }];
  let arguments = (ins ShardQ_IntMatrix:$indices, ShardQ_IntMatrix:$inverse,
                       ShardQ_IntVector:$count, ShardQ_IntVector:$req,
                       Variadic<MemRefRankOf<[I32, I64], [1, 2]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I64Attr:$interleave,
                       I64Attr:$block_size);
  let results = (outs Variadic<TensorRankOf<[I32, I64], [1, 2]>>:$results);
  let assemblyFormat = [{
    $indices `blocks` `(` $inverse `,` $count `)` `rows` `(` $req `)` `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_GatheredTableOp : ShardQ_TwoFormOp<"gathered_table", ShardQ_OnAxis> {
  let summary = "block table of gathered KV";
  let description = [{
    For kernels that find rows through a block table. Column `c` of the result `[R, W*N]` holds the tokens
    `c*B` to `c*B + B-1` of a request: `owner(c*B) * count[0] + inverse[i, l(c*B) / B]`, see
    `gathered_slots`, and -1 where that block is not gathered. `convert_indices` with it gives the slots of
    `gathered_slots`.

    Such a table exists only where a run of the interleave is whole blocks: otherwise no
    block holds neighbours, and rows are found by slot alone.

    ```
      blocks 1..6, N = 4   inverse  0 1 2 3    table  0 6 12 18  1 7 13 19  2 8 14 20  3 9 15 21
                                    4 5 0 1           4 10 16 22  5 11 17 23  0 6 12 18  1 7 13 19
    ```

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @table(%inverse: tensor<?x?xi32>, %count: tensor<1xi32>) -> tensor<?x?xi32> {
      %table = shardq.gathered_table %inverse, %count over @ranks "dcp"
          {block_size = 64 : i64, interleave = 64 : i64}
          : (tensor<?x?xi32>, tensor<1xi32>) -> tensor<?x?xi32>
      return %table : tensor<?x?xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `inverse` and the result agree in requests; the result has `N` times the width
    - `inverse` and the result are no views
    - `count` has one entry
    - `block_size` is positive, `interleave` a positive multiple of it
  }];
  let arguments = (ins ShardQ_IntMatrix:$inverse, ShardQ_IntVector:$count,
                       Variadic<MemRefRankOf<[I32], [2]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I64Attr:$interleave,
                       I64Attr:$block_size);
  let results = (outs Variadic<TensorRankOf<[I32], [2]>>:$results);
  let assemblyFormat = [{
    $inverse `,` $count `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def ShardQ_GatherGateOp : ShardQ_Op<"gather_gate", [
    DeclareOpInterfaceMethods<ConditionallySpeculatable>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>] # ShardQ_OnAxis> {
  let summary = "whether this step gathers KV";
  let description = [{
    True when both hold; equal on every rank, since every input is:

    1. a token of the step belongs to a prefill request: `query_start[R] > decodes`. With `decodes` below 0 that holds in every
       step, and the second alone decides
    2. the blocks fit the inbox: `count[0]` is at most `max_blocks`. Unset until
       `--shardq-plan-workspace` has planned it.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @gate(%query_start: tensor<?xi32>, %count: tensor<1xi32>, %decodes: index) -> i1 {
      %gate = shardq.gather_gate %query_start blocks(%count) decodes(%decodes) over @ranks "dcp"
          {block_size = 64 : i64} : tensor<?xi32>, tensor<1xi32>
      return %gate : i1
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `count` has one entry
    - `block_size` is positive, `max_blocks`, where set, not negative
  }];
  let arguments = (ins ShardQ_IntVector:$query_start, ShardQ_IntVector:$count, Index:$decodes,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I64Attr:$block_size,
                       OptionalAttr<I64Attr>:$max_blocks);
  let results = (outs I1:$result);
  let assemblyFormat = [{
    $query_start `blocks` `(` $count `)` `decodes` `(` $decodes `)` `over` $mesh $axis attr-dict
    `:` type($query_start) `,` type($count)
  }];
  let hasVerifier = 1;
}

#endif // SHARDQ_IR_SHARDQGATHEROPS
