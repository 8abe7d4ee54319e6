//===- ShardQModelOps.td - Level 1: the model --------------*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQMODELOPS
#define SHARDQ_IR_SHARDQMODELOPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_MeshOp : ShardQ_Op<"mesh", [Symbol]> {
  let summary = "the ranks that run the program, as named axes";
  let description = [{
    Ranks are numbered row-major over the axes that have no parent, the first axis
    slowest. A sub-axis divides the groups of its parent into runs of consecutive
    members. An axis `of` others joins them, the first slowest, so that one thing can be divided over ranks
    of which other things know several axes, as KV over all ranks of pcp and dcp.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    shardq.mesh @chunked ["pcp" = 2, "tp" = 4, "kv" = 8 of ["pcp", "tp"]]
    ```

    **Constraints:**
    - there is at least one axis, each name at most once
    - the parent of a sub-axis stands before it, has no parent itself, and its size is
      a multiple of the sub-axis' size
    - a joined axis joins two or more axes that stand before it and join none themselves; its size is their
      product, and its ranks are evenly spaced: neighbours along one part are as far apart as the next one is long
    - the number of ranks is at most 256
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypedArrayAttrBase<ShardQ_AxisAttr, "axes">:$axes,
                       OptionalAttr<StrAttr>:$sym_visibility);
  let assemblyFormat = "$sym_name custom<Axes>($axes) attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    static constexpr int64_t kMaxRanks = 256;
    /// The axis of that name, or null.
    AxisAttr lookupAxis(::llvm::StringRef name);
    /// The axes that an axis joins, or the axis itself.
    ::llvm::SmallVector<AxisAttr> getParts(AxisAttr axis);
    /// Product of the top-level axes.
    int64_t getNumRanks();
    /// Distance in rank number between neighbours along the axis.
    int64_t getStride(AxisAttr axis);
    /// Coordinate of a rank along the axis.
    int64_t getCoordinate(AxisAttr axis, int64_t rank) {
      return rank / getStride(axis) % axis.getSize();
    }
  }];
}

def ShardQ_ExpandRowsOp : ShardQ_TwoFormOp<"expand_rows"> {
  let summary = "request and visible length of each row of the step";
  let description = [{
    For row `i` of request `r` (`query_start[r] <= i < query_start[r+1]`): request id
    `r` and visible length
    `seq_lens[r] - (query_start[r+1] - query_start[r]) + (i - query_start[r]) + 1`: the
    number of keys that a causal row may see, never less than 0. Rows from
    `query_start[R]` on have request -1 and visible length 0. Starts that do not ascend from
    0, or end beyond `rows`, are an error of the runtime.

    `speculative_tokens` says which requests of the step are decodes (see
    `count_decode_rows`); the values do not depend on it.

    ```mlir
    func.func @expand(%query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %rows: index)
        -> (tensor<?xi32>, tensor<?xi32>) {
      %req, %visible = shardq.expand_rows %query_start, %seq_lens to %rows
          : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
      return %req, %visible : tensor<?xi32>, tensor<?xi32>
    }
    ```

    **Constraints:**
    - `query_start` has one entry more than `seq_lens`
    - both results have the same shape
    - `speculative_tokens` is not negative
  }];
  let arguments = (ins ShardQ_IntVector:$query_start, ShardQ_IntVector:$seq_lens, Index:$rows,
                       Variadic<MemRefRankOf<[I32], [1]>>:$outs,
                       DefaultValuedAttr<I64Attr, "0">:$speculative_tokens);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $query_start `,` $seq_lens `to` $rows (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def ShardQ_IndexerOp : ShardQ_TwoFormOp<"indexer", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>]> {
  let summary = "lightning indexer: the k keys that each row attends";
  let description = [{
    Scores every visible key of the row's request and keeps the `k` largest:

    `score[t, s] = sum_h weights[t, h] * max(0, q[t, h, :] . keys[row(s), :])`, `s < visible[t]`

    where `row(s) = table[req[t], s / block_size] * block_stride_rows + s % block_size`. Scores
    accumulate in f32. The result holds request-relative positions, ascending, -1 after
    the last. The choice among scores is that of `topk`. A visible length beyond the
    table is clamped to it; a key whose block is negative or whose row is outside `keys`
    is not a candidate.

    ```mlir
    func.func @index(%q: tensor<?x64x128xbf16>, %w: tensor<?x64xf32>, %keys: tensor<?x128xbf16>,
                     %table: tensor<?x?xi32>, %req: tensor<?xi32>, %visible: tensor<?xi32>)
        -> tensor<?x2048xi32> {
      %topk = shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) rows(%req, %visible)
          {block_size = 64 : i64}
          : (tensor<?x64x128xbf16>, tensor<?x64xf32>, tensor<?x128xbf16>, tensor<?x?xi32>,
             tensor<?xi32>, tensor<?xi32>) -> tensor<?x2048xi32>
      return %topk : tensor<?x2048xi32>
    }
    ```

    **Constraints:**
    - row operands and result agree in rows; `q` and `weights` in heads; `q` and `keys` in
      dimension and element type
    - heads, dimension and `k` (dimension 1 of the result) are static and positive
    - `block_size` is positive, `block_stride_rows` (default `block_size`) not below it
    - `keys` and `table` are of one view
  }];
  let arguments = (ins ShardQ_Shaped<[BF16, F16, F32], [3]>:$q, ShardQ_Shaped<[F32], [2]>:$weights,
                       ShardQ_Shaped<[BF16, F16, F32], [2]>:$keys, ShardQ_IntMatrix:$table,
                       ShardQ_IntVector:$req, ShardQ_IntVector:$visible,
                       Variadic<MemRefRankOf<[I32], [2]>>:$outs,
                       I64Attr:$block_size, OptionalAttr<I64Attr>:$block_stride_rows);
  let results = (outs Variadic<TensorRankOf<[I32], [2]>>:$results);
  let assemblyFormat = [{
    `q` `(` $q `)` `weights` `(` $weights `)` `keys` `(` $keys `)` `table` `(` $table `)`
    `rows` `(` $req `,` $visible `)` (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    int64_t getK() { return getOutType(0).getDimSize(1); }
    int64_t getBlockStride() { return getBlockStrideRows().value_or(getBlockSize()); }
  }];
}

def ShardQ_TopKOp : ShardQ_TwoFormOp<"topk", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>]> {
  let summary = "positions of the k largest scores of each row";
  let description = [{
    The `k` largest of `scores[t, 0 .. visible[t])`, as ascending positions, -1 after the
    last. Exact and deterministic: ties go to the lowest position, `0.0` and `-0.0` are
    equal, and NaN sorts below everything, taken only when fewer than `k` others are
    visible. A visible length outside `[0, S]` is clamped.

    ```mlir
    func.func @topk(%scores: tensor<?x?xf32>, %visible: tensor<?xi32>) -> tensor<?x2048xi32> {
      %topk = shardq.topk %scores visible(%visible)
          : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x2048xi32>
      return %topk : tensor<?x2048xi32>
    }
    ```

    **Constraints:**
    - operands and result agree in rows
    - `k` (dimension 1 of the result) is static and positive
  }];
  let arguments = (ins ShardQ_Shaped<[F32], [2]>:$scores, ShardQ_IntVector:$visible,
                       Variadic<MemRefRankOf<[I32], [2]>>:$outs);
  let results = (outs Variadic<TensorRankOf<[I32], [2]>>:$results);
  let assemblyFormat = [{
    $scores `visible` `(` $visible `)` (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    int64_t getK() { return getOutType(0).getDimSize(1); }
  }];
}

def ShardQ_ConvertIndicesOp : ShardQ_TwoFormOp<"convert_indices", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>, AttrSizedOperandSegments]> {
  let summary = "request-relative positions to physical KV slots";
  let description = [{
    For position `t` of row `i`:

    - `t < 0`: -1
    - a prefill row (`prefill(%prefill_req, %workspace_start)` is given and
      `prefill_req[i] >= 0`): `workspace_start[prefill_req[i]] + t`
    - otherwise `table[req[i], t / block_size] * block_stride_rows + t % block_size`; -1
      where the request is negative, the block is outside the table (which is then not
      read) or its entry is negative

    Addresses are computed in 64 bits; a slot that the result type cannot hold is -1.
    The optional second result counts the entries of each row that are not -1.

    ```mlir
    func.func @slots(%topk: tensor<?x2048xi32>, %table: tensor<?x?xi32>, %req: tensor<?xi32>)
        -> (tensor<?x2048xi32>, tensor<?xi32>) {
      %slots, %count = shardq.convert_indices %topk table(%table) rows(%req)
          {block_size = 64 : i64}
          : (tensor<?x2048xi32>, tensor<?x?xi32>, tensor<?xi32>)
          -> (tensor<?x2048xi32>, tensor<?xi32>)
      return %slots, %count : tensor<?x2048xi32>, tensor<?xi32>
    }
    ```

    **Constraints:**
    - `indices`, `req`, `prefill_req` and the results agree in rows; `indices` and the
      slots in width, which is not 0
    - there are one or two results; slots are i32 or i64, counts i32
    - `block_size` is positive, `block_stride_rows` (default `block_size`) not below it
    - `table` and the slots are of one view
  }];
  let arguments = (ins ShardQ_IntMatrix:$indices, ShardQ_IntMatrix:$table, ShardQ_IntVector:$req,
                       Optional<ShardQ_IntVector>:$prefill_req,
                       Optional<ShardQ_IntVector>:$workspace_start,
                       Variadic<MemRefRankOf<[I32, I64], [1, 2]>>:$outs,
                       I64Attr:$block_size, OptionalAttr<I64Attr>:$block_stride_rows);
  let results = (outs Variadic<TensorRankOf<[I32, I64], [1, 2]>>:$results);
  let assemblyFormat = [{
    $indices `table` `(` $table `)` `rows` `(` $req `)`
    (`prefill` `(` $prefill_req^ `,` $workspace_start `)`)?
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    int64_t getBlockStride() { return getBlockStrideRows().value_or(getBlockSize()); }
  }];
}

def ShardQ_SparseMlaOp : ShardQ_TwoFormOp<"sparse_mla", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "sparse multi-head latent attention over chosen KV rows";
  let description = [{
    `q` is `[T, H, Dq]`, in one part or in two whose last dimensions add up to `Dq` (nope,
    rope). `kv` is `[S, Dq]`, each row the key, its first `Dv` values also the value. With
    `p(k)` the softmax of `scale * q[t, h] . kv[slots[t, k]]` over the valid entries `k` of row
    `t`:

    - `out[t, h, :] = sum_k p(k) * kv[slots[t, k], 0 .. Dv)`
    - `lse[t, h]`, the optional second result, is the logarithm of the sum of the
      exponentials, in the base of `lse`

    An entry is valid when `0 <= slot < S` and its column is below `topk_length[t]`
    (clamped to `[0, K]`; `K` when not given). Other entries are not read. A row with no
    valid entry, and with `rows` a row whose request is -1, has `out` 0 and `lse` -inf. A slot
    listed twice counts twice. `sink[h]` (a natural logarithm) joins the denominator of
    `out`, not `lse`.

    `rows(%req)` otherwise changes no value: it ties the op to the step's `expand_rows`
    where the slots come from elsewhere.

    Over heads, `q` and the results hold this rank's `H = heads / size` heads. `sink` holds
    those, or all heads of the mesh axis (then the rank's block is used). Over tokens, all
    are present for this rank's rows.

    Over `kv`, `kv` holds the tokens that this rank keeps, and the op attends those of all
    ranks of the axis: a slot counts where its token lies. `--shardq-dcp` makes it local; there
    is no lowering of the op as it is, but over an axis of one rank.

    With `kv_format`, rows of `kv` are packed (`unpack_rows`), and `Dq` is what a row holds. The op is that on unpacked rows, of
    which those that are read are unpacked on the way.

    ```
        heads = ["tp"]: rank r          tokens = zigzag ["tp"]: rank r
        +---------+----+---------+      +------------------------+
        |         |    |         |      |   own early chunk      |
      T |         | r  |         |      +------------------------+
        |         |    |         |      +------------------------+
        |         |    |         |      |   own late chunk       |
        +---------+----+---------+      +------------------------+
                   H/W                             H
    ```

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @attend(%q_nope: tensor<?x16x512xbf16>, %q_rope: tensor<?x16x64xbf16>,
                      %kv: tensor<?x576xbf16>, %slots: tensor<?x2048xi32>)
        -> (tensor<?x16x512xbf16>, tensor<?x16xf32>) {
      %out, %lse = shardq.sparse_mla q(%q_nope, %q_rope) kv(%kv) slots(%slots)
          {scale = 0.0721 : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>}
          : (tensor<?x16x512xbf16>, tensor<?x16x64xbf16>, tensor<?x576xbf16>, tensor<?x2048xi32>)
          -> (tensor<?x16x512xbf16>, tensor<?x16xf32>)
      return %out, %lse : tensor<?x16x512xbf16>, tensor<?x16xf32>
    }
    ```

    **Constraints:**
    - there are one or two q parts and one or two results (`out`, `lse`)
    - q parts, `slots`, `req`, `topk_length` and the results agree in rows; q parts and
      results in heads
    - the last dimensions of the q parts add up to that of `kv`, and `Dv` does not exceed it
    - q parts, `kv` and `out` have one element type; with `kv_format`, `kv` has rows of bytes of it, and the others are of bf16
    - `slots` and `kv` are of one view, and are none where `kv` is divided over ranks
    - `slots` have a column or more, and are of i64 where `kv` has 2^31 rows or more
    - heads and dimensions are static, the heads 1 or more
    - `sink` has the op's heads or those of the whole mesh axis
    - `scale` is finite
    - the sharding's mesh exists and has its axes; each `kv` axis is one of heads or tokens, lies
      in one, or joins such an axis with others
  }];
  let arguments = (ins Variadic<ShardQ_Shaped<[BF16, F16, F32], [3]>>:$q,
                       ShardQ_Shaped<[BF16, F16, F32, I8], [2]>:$kv,
                       ShardQ_Shaped<[I32, I64], [2]>:$slots,
                       Optional<ShardQ_IntVector>:$req,
                       Optional<ShardQ_IntVector>:$topk_length,
                       Optional<ShardQ_Shaped<[F32], [1]>>:$sink,
                       Variadic<MemRefRankOf<[BF16, F16, F32], [2, 3]>>:$outs,
                       F32Attr:$scale, OptionalAttr<ShardQ_ShardingAttr>:$sharding,
                       OptionalAttr<ShardQ_LseAttr>:$lse,
                       OptionalAttr<ShardQ_PackedRowsAttr>:$kv_format);
  let results = (outs Variadic<TensorRankOf<[BF16, F16, F32], [2, 3]>>:$results);
  let assemblyFormat = [{
    `q` `(` $q `)` `kv` `(` $kv `)` `slots` `(` $slots `)` (`rows` `(` $req^ `)`)?
    (`topk_length` `(` $topk_length^ `)`)? (`sink` `(` $sink^ `)`)?
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    int64_t getNumHeads() { return getOutType(0).getDimSize(1); }
    int64_t getValueDim() { return getOutType(0).getDimSize(2); }
    int64_t getQueryDim() {
      if (PackedRowsAttr format = getKvFormatAttr())
        return format.getDim();
      return ::llvm::cast<ShapedType>(getKv().getType()).getDimSize(1);
    }
    bool hasLse() { return getNumOuts() == 2; }
    LseBase getLseBase() { return getLse() ? getLse()->getBase() : LseBase::E; }
  }];
}

def ShardQ_TapOp : ShardQ_Op<"tap", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>]> {
  let summary = "hands a value to an observer of the program";
  let description = [{
    Gives the runtime's tap callback the value under a name, and where `rows` is given the
    step row of each row of the value (-1 for padding); nothing happens without a callback. No other op
    depends on it. `shardq-run --verify` puts taps on top-k indices, `--shard-q-tokens`
    keeps them (with the rows they then hold). `count` is where the device keeps how many
    rows hold a value, -1 for no value at all; the host code of the GPU target, which does
    not know it, has it.

    ```mlir
    func.func @observe(%topk: tensor<?x2048xi32>) {
      shardq.tap "topk.0" %topk : tensor<?x2048xi32>
      return
    }
    ```

    **Constraints:**
    - the name is not empty
    - `value` and `rows` agree in rows
    - `count` has one entry, and goes with buffers
  }];
  let arguments = (ins StrAttr:$name,
                       ShardQ_Shaped<!listconcat(ShardQ_MovedElements, [I32, I64]), [1, 2, 3]>:$value,
                       Optional<ShardQ_IntVector>:$rows,
                       Optional<MemRefRankOf<[I64], [1]>>:$count);
  let assemblyFormat = [{
    $name $value (`rows` `(` $rows^ `:` type($rows) `)`)? (`count` `(` $count^ `:` type($count) `)`)?
    attr-dict `:` type($value)
  }];
  let builders = [OpBuilder<(ins "StringRef":$name, "Value":$value, "Value":$rows), [{
    build($_builder, $_state, $_builder.getStringAttr(name), value, rows, Value());
  }]>];
  let hasVerifier = 1;
}

#endif // SHARDQ_IR_SHARDQMODELOPS
