//===- ShardQDistributionOps.td - Level 2: token shards ----*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQDISTRIBUTIONOPS
#define SHARDQ_IR_SHARDQDISTRIBUTIONOPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_CountDecodeRowsOp : ShardQ_Op<"count_decode_rows", [
    DeclareOpInterfaceMethods<ConditionallySpeculatable>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "number of leading rows that belong to decode requests";
  let description = [{
    `query_start[m]` where `m` is the length of the leading run of requests with at most
    `1 + speculative_tokens` query tokens. A short request behind a longer one is prefill.

    ```mlir
    func.func @decodes(%query_start: tensor<?xi32>) -> index {
      %decodes = shardq.count_decode_rows %query_start {speculative_tokens = 1 : i64}
          : tensor<?xi32>
      return %decodes : index
    }
    ```

    **Constraints:**
    - `speculative_tokens` is not negative
  }];
  let arguments = (ins ShardQ_IntVector:$query_start,
                       DefaultValuedAttr<I64Attr, "0">:$speculative_tokens);
  let results = (outs Index:$result);
  let assemblyFormat = "$query_start attr-dict `:` type($query_start)";
  let hasVerifier = 1;
}

def ShardQ_ZigzagSplitOp : ShardQ_TwoFormOp<"zigzag_split",
    ShardQ_OnAxis> {
  let summary = "which rank owns which prefill token";
  let description = [{
    Each prefill request of `len` tokens is cut into `2W` chunks, `W` the size of the axis;
    chunk `c` spans `[floor(c*len/2W), floor((c+1)*len/2W))`. Rank `r` owns chunks `r` and
    `2W-1-r`: the token at position `p` has chunk `((p+1)*2W - 1) / len` and owner
    `min(chunk, 2W-1-chunk)`.

    ```
      request:  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |     W = 4
      owner:      0   1   2   3   3   2   1   0
    ```

    `token_ids` lists the tokens grouped by owner, ascending inside a group, counted from
    the first prefill row (`decodes`); behind them it is -1. Group `r` is
    `[rank_offsets[r], rank_offsets[r+1])`. A rank has at most `ceil(n/W) + 2R` of `n` tokens.

    Starts that do not ascend from 0 or end beyond `rows`, and `decodes` below 0, within a request or
    beyond `rows`, are an error of the runtime; tokens are then held inside the rows, each listed once.

    ```mlir
    shardq.mesh @ranks ["tp" = 4]
    func.func @split(%query_start: tensor<?xi32>, %decodes: index, %rows: index)
        -> (tensor<?xi32>, tensor<5xi32>) {
      %ids, %offsets = shardq.zigzag_split %query_start decodes(%decodes) rows(%rows)
          over @ranks "tp" : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<5xi32>)
      return %ids, %offsets : tensor<?xi32>, tensor<5xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `rank_offsets` has `W + 1` entries
  }];
  let arguments = (ins ShardQ_IntVector:$query_start, Index:$decodes, Index:$rows,
                       Variadic<MemRefRankOf<[I32], [1]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $query_start `decodes` `(` $decodes `)` `rows` `(` $rows `)` `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_SplitGateOp : ShardQ_Op<"split_gate", [
    DeclareOpInterfaceMethods<ConditionallySpeculatable>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "whether this step runs token-sharded";
  let description = [{
    True when all of these hold; equal on every rank, since every input is:

    1. there is a prefill request, and at least `min_tokens` prefill tokens
       (`rows - decodes`)
    2. some prefill request's sequence is longer than `topk`
    3. prefill query lengths add up to the prefill tokens (no graph padding among them)
    4. every rank owns a token
    5. the step fits the buffers: no rank owns more than `max_rank_rows`, `rows` is at most
       `max_rows`. Unset until `--shardq-plan-workspace` has planned the buffers.

    ```mlir
    func.func @gate(%offsets: tensor<9xi32>, %query_start: tensor<?xi32>,
                    %seq_lens: tensor<?xi32>, %decodes: index, %rows: index) -> i1 {
      %gate = shardq.split_gate offsets(%offsets) requests(%query_start, %seq_lens)
          decodes(%decodes) rows(%rows) {min_tokens = 1024 : i64, topk = 2048 : i64}
          : tensor<9xi32>, tensor<?xi32>, tensor<?xi32>
      return %gate : i1
    }
    ```

    **Constraints:**
    - `offsets` has a static size of at least 2
    - `query_start` has one entry more than `seq_lens`
    - `min_tokens`, `topk` and, where set, `max_rank_rows` and `max_rows` are not negative
  }];
  let arguments = (ins ShardQ_IntVector:$offsets, ShardQ_IntVector:$query_start,
                       ShardQ_IntVector:$seq_lens, Index:$decodes, Index:$rows,
                       I64Attr:$min_tokens, I64Attr:$topk,
                       OptionalAttr<I64Attr>:$max_rank_rows, OptionalAttr<I64Attr>:$max_rows);
  let results = (outs I1:$result);
  let assemblyFormat = [{
    `offsets` `(` $offsets `)` `requests` `(` $query_start `,` $seq_lens `)` `decodes` `(` $decodes `)`
    `rows` `(` $rows `)` attr-dict `:` type($offsets) `,` type($query_start) `,` type($seq_lens)
  }];
  let hasVerifier = 1;
}

def ShardQ_LocalRowsOp : ShardQ_TwoFormOp<"local_rows", ShardQ_OnAxis> {
  let summary = "the step rows that this rank computes";
  let description = [{
    `0, 1, .., decodes-1`, then `decodes + token_ids[j]` for each `j` of this rank's group. The
    length differs between ranks.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @mine(%ids: tensor<?xi32>, %offsets: tensor<9xi32>, %decodes: index)
        -> tensor<?xi32> {
      %mine = shardq.local_rows %ids, %offsets decodes(%decodes) over @ranks "tp"
          : (tensor<?xi32>, tensor<9xi32>, index) -> tensor<?xi32>
      return %mine : tensor<?xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis; `offsets` has one entry more than its size
    - the result's size is dynamic
  }];
  let arguments = (ins ShardQ_IntVector:$ids, ShardQ_IntVector:$offsets, Index:$decodes,
                       Variadic<MemRefRankOf<[I32], [1]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $ids `,` $offsets `decodes` `(` $decodes `)` `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_TakeRowsOp : ShardQ_TwoFormOp<"take_rows"> {
  let summary = "chosen rows of a row operand";
  let description = [{
    `result[i, ...] = source[rows[i], ...]`; rows of `missing`, or zeros without it, where `rows[i]` is
    outside the source.

    ```mlir
    func.func @take(%q: tensor<?x64x128xbf16>, %mine: tensor<?xi32>) -> tensor<?x64x128xbf16> {
      %local = shardq.take_rows %q[%mine]
          : (tensor<?x64x128xbf16>, tensor<?xi32>) -> tensor<?x64x128xbf16>
      return %local : tensor<?x64x128xbf16>
    }
    ```

    **Constraints:**
    - source and result have one element type, one view and, behind dimension 0, one shape
    - `rows` and the result agree in rows
    - `missing` is a number of the element type, which is i32, i64 or f32 then
  }];
  let arguments = (ins ShardQ_Shaped<!listconcat(ShardQ_MovedElements, [I32, I64]), [1, 2, 3]>:$source,
                       ShardQ_IntVector:$rows,
                       Variadic<MemRefRankOf<!listconcat(ShardQ_MovedElements, [I32, I64]), [1, 2, 3]>>:$outs,
                       OptionalAttr<TypedAttrInterface>:$missing);
  let results = (outs Variadic<TensorRankOf<!listconcat(ShardQ_MovedElements, [I32, I64]), [1, 2, 3]>>:$results);
  let assemblyFormat = [{
    $source `[` $rows `]` (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let builders = [OpBuilder<(ins "TypeRange":$results, "Value":$source, "Value":$rows,
                                 "ValueRange":$outs), [{
    build($_builder, $_state, results, source, rows, outs, TypedAttr());
  }]>];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    /// What rows outside the source consist of.
    TypedAttr getMissingValue() {
      if (TypedAttr missing = getMissingAttr())
        return missing;
      return ::llvm::cast<TypedAttr>(
          Builder(getContext()).getZeroAttr(getOutType(0).getElementType()));
    }
  }];
}

def ShardQ_ExchangeOp : ShardQ_TwoFormOp<"exchange",
    [AttrSizedOperandSegments, ShardQ_CollectiveOpInterface] # ShardQ_OnAxis> {
  let summary = "turns head shards of the prefill rows into token shards, or back";
  let description = [{
    With `D` the decode rows, `W` the axis size, `H` all heads, and row `j` of rank `p`'s group
    the step row `row(p, j) = D + ids[offsets[p] + j]`:

    `heads_to_tokens`: sources `[T, H/W, d]` in one part or two, result `[n, H, sum of d]`, `n`
    this rank's group size. `result[j, h]` is the concatenation of the parts of row
    `row(me, j)`, head `h % (H/W)`, on rank `h / (H/W)`.

    ```
      rank 0    rank 1               rank 0           rank 1
      +----+    +----+               +---------+
      | a0 |    | a1 |               | a0   a1 |
      | b0 |    | b1 |      ---->    | d0   d1 |     +---------+
      | c0 |    | c1 |               +---------+     | b0   b1 |
      | d0 |    | d1 |                               | c0   c1 |
      +----+    +----+                               +---------+
       T x H/W                         n x H
    ```

    `tokens_to_heads`: the inverse. Source `[n, H, d]` or `[n, H]`, result `[T, H/W, d]` or
    `[T, H/W]` with `T` the size of `ids`. Row `row(p, j)` comes from row `j` of rank `p`, heads of
    this rank. Rows below `D` are those of `after` (which has `D` rows), or 0 without it; rows
    beyond the last token are 0.

    Where types leave rows open, others than `T`, or than `n` where the result's type has them, are an error of the runtime.

    Collective: all ranks of the group run the same exchanges in the same order. Each
    writes peer memory and is never dropped, moved or speculated.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @exchange(%q_nope: tensor<?x16x512xbf16>, %q_rope: tensor<?x16x64xbf16>,
                        %ids: tensor<?xi32>, %offsets: tensor<9xi32>, %decodes: index)
        -> tensor<?x128x576xbf16> {
      %q = shardq.exchange heads_to_tokens(%q_nope, %q_rope) by(%ids, %offsets)
          decodes(%decodes) over @ranks "tp"
          : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?xi32>, tensor<9xi32>, index)
          -> tensor<?x128x576xbf16>
      return %q : tensor<?x128x576xbf16>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis; `offsets` has one entry more than its size
    - the direction is `heads_to_tokens` or `tokens_to_heads`
    - there are one or two sources, one when `tokens_to_heads`; two are of rank 3
    - sources, `after` and result have one element type and one rank; elements are bf16, f16, f32, i8, f8E4M3FN or
      f8E5M2
    - heads of the token side are `W` times those of the head side
    - `after` stands with `tokens_to_heads` only and has the result's heads and dimension
    - heads and dimensions are static
    - `transport`, where chosen, is `direct` or `nccl`
  }];
  let arguments = (ins ShardQ_DirectionAttr:$direction,
                       Variadic<ShardQ_Shaped<ShardQ_MovedElements, [2, 3]>>:$sources,
                       ShardQ_IntVector:$ids, ShardQ_IntVector:$offsets, Index:$decodes,
                       Optional<ShardQ_Shaped<ShardQ_MovedElements, [2, 3]>>:$after,
                       Variadic<MemRefRankOf<ShardQ_MovedElements, [2, 3]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis,
                       OptionalAttr<ShardQ_TransportAttr>:$transport);
  let results = (outs Variadic<TensorRankOf<ShardQ_MovedElements, [2, 3]>>:$results);
  let assemblyFormat = [{
    custom<Direction>($direction) `(` $sources `)` `by` `(` $ids `,` $offsets `)` `decodes` `(` $decodes `)`
    (`after` `(` $after^ `)`)? `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    MemRefType getInboxType() { return ::llvm::cast<MemRefType>(getOuts().front().getType()); }
  }];
}

#endif // SHARDQ_IR_SHARDQDISTRIBUTIONOPS
