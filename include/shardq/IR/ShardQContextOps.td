//===- ShardQContextOps.td - Level 2: sharded KV cache -----*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQCONTEXTOPS
#define SHARDQ_IR_SHARDQCONTEXTOPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_LocalLengthsOp : ShardQ_TwoFormOp<"local_lengths", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>] # ShardQ_OnAxis> {
  let summary = "how many of the first n tokens this rank keeps";
  let description = [{
    For each entry `n`, with `N` the axis size, `r` this rank and `I` the interleave: `base = n / I / N * I`,
    `rest = n - base*N`, result `base + clamp(rest - r*I, 0, I)`; 0 for a negative `n`. The results of
    all ranks add up to `n`.

    Of sequence lengths, what the rank keeps of each request. Of visible lengths (`p + 1` for
    the query at position `p`), how many of its keys each row sees, which with several
    tokens of a request in a step is right for every interleave.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @lengths(%seq_lens: tensor<?xi32>) -> tensor<?xi32> {
      %local = shardq.local_lengths %seq_lens over @ranks "dcp" {interleave = 64 : i64}
          : (tensor<?xi32>) -> tensor<?xi32>
      return %local : tensor<?xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `interleave` is positive
    - operand and result agree in entries
  }];
  let arguments = (ins ShardQ_IntVector:$lengths, Variadic<MemRefRankOf<[I32], [1]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I64Attr:$interleave);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $lengths `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def ShardQ_DraftLengthsOp : ShardQ_TwoFormOp<"draft_lengths", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>]> {
  let summary = "sequence lengths of a draft step";
  let description = [{
    For each entry `n` of `lengths`, the tokens of a request before any was drafted: `n + step + 1` where `n` is positive,
    and 0 elsewhere, for requests that are absent. `step` counts draft steps from 0. A sum that i32 does not hold is the largest
    number of it. The result is a value of its own, so the lengths of the step that drafts begin from stay what they are.
    A step below 0 is an error of the runtime, and counts as 0.

    ```mlir
    func.func @draft(%seq_lens: tensor<?xi32>, %step: index) -> tensor<?xi32> {
      %lengths = shardq.draft_lengths %seq_lens step(%step) : (tensor<?xi32>, index) -> tensor<?xi32>
      return %lengths : tensor<?xi32>
    }
    ```

    **Constraints:**
    - operand and result agree in entries
    - `step` is not negative, where it is a constant
  }];
  let arguments = (ins ShardQ_IntVector:$lengths, Index:$step, Variadic<MemRefRankOf<[I32], [1]>>:$outs);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $lengths `step` `(` $step `)` (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def ShardQ_ShardLengthsOp : ShardQ_TwoFormOp<"shard_lengths", ShardQ_OnAxis> {
  let summary = "query starts and key lengths of this rank's rows of a step";
  let description = [{
    Of a step whose rows are divided over the axis in runs of `rows`, in rank order (`tokens = contiguous`), what
    belongs to this rank's: rows `r*rows` up to `(r+1)*rows` of the step, with `r` this rank.

    - `starts` `[R+1]`: first row of each request among this rank's
    - `lengths` `[R]`: `seq_lens` without those tokens of the request that stand behind this rank's rows, not
      below 0; 0 where the request has none of the rows

    `expand_rows` of the results has request and visible length of each row, since its mask is aligned to the
    right. Rows behind the last start belong to no request. Starts that do not ascend from 0, or end beyond the rows of
    all ranks, are an error of the runtime; results are then held inside the rank's rows.

    ```
      starts 0 3 5, lengths 3 5, two ranks of 3 rows: rank 0  0 3 3, 3 0    rank 1  0 0 2, 0 5
    ```

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @own(%query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %rows: index)
        -> (tensor<?xi32>, tensor<?xi32>) {
      %starts, %lengths = shardq.shard_lengths %query_start, %seq_lens rows(%rows) over @ranks "dcp"
          : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
      return %starts, %lengths : tensor<?xi32>, tensor<?xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `query_start` has one entry more than `seq_lens`; `starts` the shape of `query_start`, `lengths` that of
      `seq_lens`
  }];
  let arguments = (ins ShardQ_IntVector:$query_start, ShardQ_IntVector:$seq_lens, Index:$rows,
                       Variadic<MemRefRankOf<[I32], [1]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $query_start `,` $seq_lens `rows` `(` $rows `)` `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_FilterIndicesOp : ShardQ_TwoFormOp<"filter_indices", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>, AttrSizedOperandSegments] # ShardQ_OnAxis> {
  let summary = "request-relative positions to this rank's slots";
  let description = [{
    With `N` the axis size, `r` this rank and `I` the interleave, the position `t` is this rank's if
    `t >= 0` and `(t / I) % N == r`. Its local position is `l = (t / (N*I)) * I + t % I`, its slot
    `table[req[i], l / block_size] * block_stride_rows + l % block_size`, or `l` itself without `table`.
    A position whose request is negative, whose block is outside the table (which is then
    not read) or whose entry is negative has no slot; nor has one that the result type
    cannot hold. Addresses are computed in 64 bits.

    Slots stand at the front of the row, in the order of the positions, with -1 behind
    them; with `in_place` in the columns of their positions, with -1 in the others. One rank
    compacts like many. The optional second result counts the slots of each row.

    ```
      indices       8   5 130   7  -1 262      N = 2, I = 1, rank 0, table 11 2 7 5 of 64
      compacted   708 129 451  -1  -1  -1
      in place    708  -1 129  -1  -1 451
    ```

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @slots(%topk: tensor<?x2048xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>)
        -> (tensor<?x2048xi32>, tensor<?xi32>) {
      %slots, %count = shardq.filter_indices %topk table(%table) rows(%req) over @ranks "dcp"
          {block_size = 64 : i64, interleave = 64 : i64}
          : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>)
          -> (tensor<?x2048xi32>, tensor<?xi32>)
      return %slots, %count : tensor<?x2048xi32>, tensor<?xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `indices`, `req` and the results agree in rows; `indices` and the slots in width, which is not 0
    - there are one or two results; slots are i32 or i64, counts i32
    - `interleave` is positive
    - `table`, `rows` and `block_size` stand together; `block_stride_rows` (default `block_size`) with them
    - `block_size` is positive, and it or `interleave` is a multiple of the other; `block_stride_rows` is not below it
    - `table` and the slots are no views
  }];
  let arguments = (ins ShardQ_IntMatrix:$indices, Optional<ShardQ_IntMatrix>:$table,
                       Optional<ShardQ_IntVector>:$req,
                       Variadic<MemRefRankOf<[I32, I64], [1, 2]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I64Attr:$interleave,
                       OptionalAttr<I64Attr>:$block_size,
                       OptionalAttr<I64Attr>:$block_stride_rows, UnitAttr:$in_place);
  let results = (outs Variadic<TensorRankOf<[I32, I64], [1, 2]>>:$results);
  let assemblyFormat = [{
    $indices (`table` `(` $table^ `)`)? (`rows` `(` $req^ `)`)? `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    /// Rows from one block to the next; only with a table.
    int64_t getBlockStride() { return getBlockStrideRows().value_or(*getBlockSize()); }
  }];
}

def ShardQ_GatherQueryOp : ShardQ_TwoFormOp<"gather_query", [
    AttrSizedOperandSegments, ShardQ_CollectiveOpInterface] # ShardQ_OnAxis> {
  let summary = "the queries of all heads of a group, on each of its ranks";
  let description = [{
    Sources `[T, H/N, d]` in one part or two, result `[T, H, sum of d]`: head `h` of a row is the
    concatenation of the parts of head `h % (H/N)` on member `h / (H/N)`. `T` is the same on all
    ranks. The result is where the members write, which its consumer reads in place. Where its type says how many rows it
    has and those of the sources do not, other rows are an error of the runtime.

    With `padded_heads` the result may have more heads, for kernels that take a fixed number: those behind the
    `H` of the group are storage alone, which nobody writes, and whatever they hold is no data.

    ```
      rank 0    rank 1               rank 0        rank 1
      +----+    +----+               +---------+   +---------+
      | a0 |    | a1 |               | a0   a1 |   | a0   a1 |
      | b0 |    | b1 |      ---->    | b0   b1 |   | b0   b1 |
      +----+    +----+               +---------+   +---------+
      T x H/N                           T x H         T x H
    ```

    Collective: see `exchange`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @gather(%q_nope: tensor<?x16x512xbf16>, %q_rope: tensor<?x16x64xbf16>)
        -> tensor<?x64x576xbf16> {
      %q = shardq.gather_query(%q_nope, %q_rope) over @ranks "dcp"
          : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>) -> tensor<?x64x576xbf16>
      return %q : tensor<?x64x576xbf16>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - there are one or two sources; they agree in rows and heads, result and sources in rows
    - sources and result have one element type: bf16, f16, f32, i8, f8E4M3FN or f8E5M2
    - the result has `N` times the heads of a source, with `padded_heads` or more, and the dimensions of all sources
      together
    - heads and dimensions are static
    - the destination of the buffer form is in symmetric memory of the mesh
    - `transport`, where chosen, is `direct` or `nccl`
  }];
  let arguments = (ins Variadic<ShardQ_Shaped<ShardQ_MovedElements, [3]>>:$sources,
                       Variadic<MemRefRankOf<ShardQ_MovedElements, [3]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis,
                       OptionalAttr<ShardQ_TransportAttr>:$transport, UnitAttr:$padded_heads);
  let results = (outs Variadic<TensorRankOf<ShardQ_MovedElements, [3]>>:$results);
  let assemblyFormat = [{
    `(` $sources `)` `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    Direction getDirection() { return Direction::GatherHeads; }
    MemRefType getInboxType() { return ::llvm::cast<MemRefType>(getOuts().front().getType()); }
  }];
}

def ShardQ_CombineLseOp : ShardQ_TwoFormOp<"combine_lse", [
    AttrSizedOperandSegments, ShardQ_CollectiveOpInterface] # ShardQ_OnAxis> {
  let summary = "merges the partial attention outputs of a group, each rank its heads, its rows or all";
  let description = [{
    Every member attended all `H` heads over its part of the keys. `partial` is `[T, H, d]`,
    `partial_lse` `[T, H]`, on each; the result `[T, H/N, d]` has this rank's heads of what attention
    over all keys gives, a result `[T, H, d]` all of them. With `scatter_tokens` the result `[T/N, H, d]` has all
    heads of this rank's rows, `r*T/N` up to `(r+1)*T/N` for rank `r`. For each row and head, over the members `s`:

    - an LSE of NaN or +inf counts as -inf; a member with -inf takes no part, and its
      partial output is not read
    - `w[s] = base ^ (lse[s] - max)`, the maximum subtracted before the base is converted
    - `out = sum_s w[s] * partial[s] / sum_s w[s]`, in f32, in ascending rank order, rounded once
    - the optional second result is `max + log_base(sum_s w[s])`, in the base of `partial_lse`
    - where no member takes part, `out` is 0 and the merged LSE -inf
    - `sink`, a number for each head of the result, joins the divisor of `out` as the weight of a key without a value.
      It is a natural logarithm whatever the base, and changes no merged LSE and no row in which no member takes part

    ```
      rank 0       rank 1               rank 0    rank 1       with scatter_tokens
      +---------+  +---------+          +----+    +----+       +---------+  +---------+
      | a0   a1 |  | a0'  a1'|          | a0 |    | a1 |       | a0   a1 |  | b0   b1 |
      | b0   b1 |  | b0'  b1'|  ---->   | b0 |    | b1 |       +---------+  +---------+
      +---------+  +---------+          +----+    +----+         T/N x H
         T x H        T x H             T x H/N
    ```

    `T` is the same on all ranks. Rows that the ranks cannot share evenly are an error of the runtime, and so are others than
    the result's type says where that of `partial` does not.

    `--shardq-select-transport` chooses how that is done, and makes other ops of the form in which each rank keeps
    all heads and of those that `transport` names `ag_rs` and `ag_ar`.

    Collective: see `exchange`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @combine(%partial: tensor<?x64x512xbf16>, %lse: tensor<?x64xf32>)
        -> (tensor<?x16x512xbf16>, tensor<?x16xf32>) {
      %out, %merged = shardq.combine_lse %partial lse(%lse) over @ranks "dcp"
          : (tensor<?x64x512xbf16>, tensor<?x64xf32>)
          -> (tensor<?x16x512xbf16>, tensor<?x16xf32>)
      return %out, %merged : tensor<?x16x512xbf16>, tensor<?x16xf32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - there are one or two results
    - `partial` and `partial_lse` agree in rows and heads, the results in both with each other
    - the results have the rows of `partial` and `1/N` of the heads, or all; with `scatter_tokens` `1/N` of the rows and all
      heads. The first has the dimension of `partial`
    - `sink` has as many entries as the results have heads
    - `partial` and the first result have one element type, `partial_lse` and the second
    - heads and dimensions are static
    - the base, `lse` (default e), is that of the `sparse_mla`, `combine_lse` or `weigh_partial` that made `partial_lse`,
      also through casts, reshapes, slices, rows that were taken, gathered, exchanged or put together, selections, branches and
      loops
    - `transport` is not `ag_rs` where the results have all heads, not `ag_ar` where they have `1/N`; neither with
      `scatter_tokens` or a `sink`
  }];
  let arguments = (ins ShardQ_Shaped<[BF16, F16, F32], [3]>:$partial,
                       ShardQ_Shaped<[BF16, F16, F32], [2]>:$partial_lse,
                       Optional<ShardQ_Shaped<[F32], [1]>>:$sink,
                       Variadic<MemRefRankOf<[BF16, F16, F32], [2, 3]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, OptionalAttr<ShardQ_LseAttr>:$lse,
                       OptionalAttr<ShardQ_TransportAttr>:$transport, UnitAttr:$scatter_tokens);
  let results = (outs Variadic<TensorRankOf<[BF16, F16, F32], [2, 3]>>:$results);
  let assemblyFormat = [{
    $partial `lse` `(` $partial_lse `)` (`sink` `(` $sink^ `)`)? `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    Direction getDirection() {
      return getScatterTokens() ? Direction::ScatterRows : Direction::ScatterHeads;
    }
    /// `[N*T, H/N, d + p]`, the rows of member `s` from `s*T` on, with `T` and `H/N`
    /// those of the result; `p` elements are kLseBytes.
    MemRefType getInboxType();
    LseBase getLseBase() { return getLse() ? getLse()->getBase() : LseBase::E; }
    /// The results have the heads of `partial` and its rows: all, or the only
    /// rank's.
    bool keepsAllHeads();
  }];
}

def ShardQ_WeighPartialOp : ShardQ_TwoFormOp<"weigh_partial", ShardQ_OnAxis> {
  let summary = "this rank's share of a merged attention output";
  let description = [{
    What a sum over the members of a group makes the result of `combine_lse` of: `partial` `[T, H, d]`
    times its weight, in f32. `lses` `[N*T, H]` has the LSEs of all members, rank after rank, as
    `gather_rows` returns them. For each row and head, with `w[s]` as in `combine_lse` and `r` this rank:

    - the result is `w[r] / sum_s w[s] * partial`
    - where this rank's LSE is -inf (NaN and +inf count as that) it is 0, and `partial` is not read
    - the optional second result is the merged LSE, of all heads, in the base of `lses`; -inf where
      no member takes part

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @weigh(%partial: tensor<?x64x512xbf16>, %lses: tensor<?x64xf32>)
        -> (tensor<?x64x512xf32>, tensor<?x64xf32>) {
      %share, %merged = shardq.weigh_partial %partial lses(%lses) over @ranks "dcp"
          : (tensor<?x64x512xbf16>, tensor<?x64xf32>)
          -> (tensor<?x64x512xf32>, tensor<?x64xf32>)
      return %share, %merged : tensor<?x64x512xf32>, tensor<?x64xf32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - there are one or two results
    - `lses` has `N` times the rows of `partial`, and its heads
    - the share has the shape of `partial`, the merged LSE its rows and heads
    - the share is of f32, the merged LSE of the element type of `lses`
    - heads and dimensions are static
    - the base, `lse` (default e), is that of what made `lses`, as for `combine_lse`
  }];
  let arguments = (ins ShardQ_Shaped<[BF16, F16, F32], [3]>:$partial,
                       ShardQ_Shaped<[BF16, F16, F32], [2]>:$lses,
                       Variadic<MemRefRankOf<[BF16, F16, F32], [2, 3]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, OptionalAttr<ShardQ_LseAttr>:$lse);
  let results = (outs Variadic<TensorRankOf<[BF16, F16, F32], [2, 3]>>:$results);
  let assemblyFormat = [{
    $partial `lses` `(` $lses `)` `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    LseBase getLseBase() { return getLse() ? getLse()->getBase() : LseBase::E; }
  }];
}

def ShardQ_ReduceHeadsOp : ShardQ_TwoFormOp<"reduce_heads", [
    ShardQ_CollectiveOpInterface] # ShardQ_OnAxis> {
  let summary = "sums over a group, each rank its heads";
  let description = [{
    Sources `[T, H, d]`, result `[T, H/N, d]` on each rank: the sum of its heads over the members, in f32, in
    ascending rank order, rounded once. `T` is the same on all ranks; others than the result's type says, where that of the
    source does not, are an error of the runtime. A reduce-scatter; with a
    `gather_query` of the result an all-reduce, whose sums are the same on all ranks bit for bit.

    ```
      rank 0       rank 1               rank 0        rank 1
      +---------+  +---------+          +---------+   +---------+
      | a0   a1 |  | a0'  a1'|          | a0 + a0'|   | a1 + a1'|
      | b0   b1 |  | b0'  b1'|  ---->   | b0 + b0'|   | b1 + b1'|
      +---------+  +---------+          +---------+   +---------+
         T x H        T x H               T x H/N       T x H/N
    ```

    Collective: see `exchange`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @reduce(%share: tensor<?x64x512xf32>) -> tensor<?x16x512xbf16> {
      %out = shardq.reduce_heads %share over @ranks "dcp"
          : (tensor<?x64x512xf32>) -> tensor<?x16x512xbf16>
      return %out : tensor<?x16x512xbf16>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - source and result agree in rows and values a head
    - the result has `1/N` of the heads
    - heads and dimensions are static
    - `transport`, where chosen, is `direct` or `nccl`
  }];
  let arguments = (ins ShardQ_Shaped<[BF16, F16, F32], [3]>:$source,
                       Variadic<MemRefRankOf<[BF16, F16, F32], [3]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis,
                       OptionalAttr<ShardQ_TransportAttr>:$transport);
  let results = (outs Variadic<TensorRankOf<[BF16, F16, F32], [3]>>:$results);
  let assemblyFormat = [{
    $source `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    Direction getDirection() { return Direction::ScatterHeads; }
    /// `[N*T, H/N, d]`, the rows of member `s` from `s*T` on.
    MemRefType getInboxType();
  }];
}

def ShardQ_SumPartialsOp : ShardQ_Op<"sum_partials", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "sums what the members of a group wrote to an inbox of `reduce_heads`";
  let description = [{
    The part of `reduce_heads` behind the wait: row `t` of `out` is the sum of rows `s*T + t` of the inbox
    `[N*T, H, d]` over the members `s`, ascending, in f32, rounded once.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @sum(%inbox: memref<?x16x512xf32, #shardq.symmetric<@ranks>>,
                   %out: memref<?x16x512xbf16>) {
      shardq.sum_partials %inbox into(%out) over @ranks "dcp"
          : memref<?x16x512xf32, #shardq.symmetric<@ranks>>, memref<?x16x512xbf16>
      return
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `inbox` has `N` times the rows of `out`, its heads and its values a head
    - heads and dimensions are static
  }];
  let arguments = (ins MemRefRankOf<[BF16, F16, F32], [3]>:$inbox,
                       MemRefRankOf<[BF16, F16, F32], [3]>:$out,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis);
  let assemblyFormat = [{
    $inbox `into` `(` $out `)` `over` $mesh $axis attr-dict `:` type($inbox) `,` type($out)
  }];
  let hasVerifier = 1;
}

def ShardQ_MergeLseOp : ShardQ_Op<"merge_lse", [
    AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "merges the partial outputs in an inbox of `combine_lse`";
  let description = [{
    The part of `combine_lse` behind the wait. Row `s*T + t` of the inbox `[N*T, H, d + p]` is
    member `s`'s partial output of row `t`, `d` values a head and then 16 bytes, the first four
    of which are the LSE as f32. `sink` is that of `combine_lse`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @merge(%inbox: memref<?x16x520xbf16, #shardq.symmetric<@ranks>>,
                     %out: memref<?x16x512xbf16>, %merged: memref<?x16xf32>) {
      shardq.merge_lse %inbox into(%out, %merged) over @ranks "dcp"
          : memref<?x16x520xbf16, #shardq.symmetric<@ranks>>, memref<?x16x512xbf16>,
            memref<?x16xf32>
      return
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `inbox` has `N` times the rows of `out`, its heads, and 16 bytes a head more
    - `inbox` and `out` have one element type
    - `merged` has the rows and heads of `out`
    - `sink` has an entry for each head
    - heads and dimensions are static
  }];
  let arguments = (ins MemRefRankOf<[BF16, F16, F32], [3]>:$inbox,
                       MemRefRankOf<[BF16, F16, F32], [3]>:$out,
                       Optional<MemRefRankOf<[BF16, F16, F32], [2]>>:$merged,
                       Optional<MemRefRankOf<[F32], [1]>>:$sink,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, OptionalAttr<ShardQ_LseAttr>:$lse);
  let assemblyFormat = [{
    $inbox `into` `(` $out (`,` $merged^)? `)` (`sink` `(` $sink^ `:` type($sink) `)`)?
    `over` $mesh $axis attr-dict `:` type($inbox) `,` type($out) (`,` type($merged)^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    LseBase getLseBase() { return getLse() ? getLse()->getBase() : LseBase::E; }
  }];
}

#endif // SHARDQ_IR_SHARDQCONTEXTOPS
