//===- ShardQViewOps.td - Level 1 and 2: views and formats -*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQVIEWOPS
#define SHARDQ_IR_SHARDQVIEWOPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_ReplicatedTableOp : ShardQ_TwoFormOp<"replicated_table", ShardQ_OnAxis> {
  let summary = "block table of a cache that every rank has whole";
  let description = [{
    `table` `[R, W]` is a rank's own, of a cache whose tokens are divided over the `N` ranks of the axis. The
    result `[R, N*W]` is that of a second cache (the indexer's keys) that is not divided and has `N` times the blocks:
    with `bpp` the blocks of the table to one of the scheduler's, `blocks_per_block`, column `c` is

    - `local = c / (N*bpp) * bpp + c % bpp`, `rank = c / bpp % N`, `b = table[i, local]`
    - entry `(b / bpp * N + rank) * bpp + b % bpp`; -1 where `local` is not below `W`, `b` is negative, or i32
      does not hold it
    - 0 for requests whose length is not positive

    Made once, from a table that is no view: of a view, the blocks would be those of nobody.

    ```
      table  10 11 12 13      N = 2     view  20 21 22 23 24 25 26 27
      table  10 11 16 17      bpp = 2   view  20 21 22 23 32 33 34 35
    ```

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @view(%table: tensor<?x?xi32>, %seq_lens: tensor<?xi32>)
        -> tensor<?x?xi32, #shardq.view<replicated>> {
      %view = shardq.replicated_table %table lengths(%seq_lens) over @ranks "dcp"
          {blocks_per_block = 1 : i64}
          : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32, #shardq.view<replicated>>
      return %view : tensor<?x?xi32, #shardq.view<replicated>>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `table` and `lengths` agree in requests with the result, which has `N` times the width
    - `table` is no view, the result is `#shardq.view<replicated>`
    - `blocks_per_block` is 1 to 2^31 - 1
  }];
  let arguments = (ins ShardQ_IntMatrix:$table, ShardQ_IntVector:$lengths,
                       Variadic<MemRefRankOf<[I32], [2]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis,
                       DefaultValuedAttr<I64Attr, "1">:$blocks_per_block);
  let results = (outs Variadic<TensorRankOf<[I32], [2]>>:$results);
  let assemblyFormat = [{
    $table `lengths` `(` $lengths `)` `over` $mesh $axis (`outs` `(` $outs^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def ShardQ_TokenSlotsOp : ShardQ_TwoFormOp<"token_slots", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "where the tokens of the step are written";
  let description = [{
    The token of row `i` is at position `t = visible[i] - 1` of its request, as `expand_rows` has it. Its slot is
    `table[req[i], t / block_size] * block_stride_rows + t % block_size`, and -1 for padding (visible length 0 or less, or a
    negative request). `write_rows` takes the slots.

    A token has nowhere to go whose request or block is outside the table, whose entry of the table is negative, or whose
    slot the result type cannot hold: its slot is -1 too, and it is an error of the
    runtime, which the call returns with the request, the block, and the size of the table or the entry.

    `over` an axis of `N` ranks with `interleave` `I`, `table` is this rank's own: the slot is that of the local position
    `t / (N*I) * I + t % I`, and -1 where another rank keeps the token, which is `t / I % N`.

    With the table of `replicated_table`, slots are those of the cache that each rank has whole: the same on all. Readers
    find each token where it was written, `convert_indices` and `filter_indices` through the same table.

    ```
      view 20 21 22 23, blocks of 4   visible  1  4  5  8  9 16  0   slots 80 83 84 87 88 95 -1
    ```

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @slots(%table: tensor<?x?xi32>, %view: tensor<?x?xi32, #shardq.view<replicated>>,
                     %req: tensor<?xi32>, %visible: tensor<?xi32>)
        -> (tensor<?xi64>, tensor<?xi64, #shardq.view<replicated>>) {
      %own = shardq.token_slots table(%table) rows(%req, %visible) over @ranks "dcp"
          {block_size = 64 : i64, interleave = 64 : i64}
          : (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>
      %all = shardq.token_slots table(%view) rows(%req, %visible) {block_size = 64 : i64}
          : (tensor<?x?xi32, #shardq.view<replicated>>, tensor<?xi32>, tensor<?xi32>)
          -> tensor<?xi64, #shardq.view<replicated>>
      return %own, %all : tensor<?xi64>, tensor<?xi64, #shardq.view<replicated>>
    }
    ```

    **Constraints:**
    - the mesh, where given, exists and has the axis
    - `mesh`, `axis` and `interleave` stand together, and then `table` is no view
    - `req`, `visible` and the result agree in rows
    - `table` and the result are of one view
    - `interleave` and `block_size` are positive, and one is a multiple of the other; `block_stride_rows` (default
      `block_size`) is not below `block_size`
  }];
  let arguments = (ins ShardQ_IntMatrix:$table, ShardQ_IntVector:$req, ShardQ_IntVector:$visible,
                       Variadic<MemRefRankOf<[I32, I64], [1]>>:$outs,
                       OptionalAttr<FlatSymbolRefAttr>:$mesh, OptionalAttr<StrAttr>:$axis,
                       OptionalAttr<I64Attr>:$interleave, I64Attr:$block_size,
                       OptionalAttr<I64Attr>:$block_stride_rows);
  let results = (outs Variadic<TensorRankOf<[I32, I64], [1]>>:$results);
  let assemblyFormat = [{
    `table` `(` $table `)` `rows` `(` $req `,` $visible `)` (`over` $mesh^ $axis)?
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    int64_t getBlockStride() { return getBlockStrideRows().value_or(getBlockSize()); }
  }];
}

def ShardQ_UnpackRowsOp : ShardQ_TwoFormOp<"unpack_rows", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>]> {
  let summary = "bf16 rows of packed ones";
  let description = [{
    `packed` has rows of bytes as `format` says, the result their values: those of the latent part times the scale of
    their 128, a product in f32 that is rounded to bf16, then those with rope as they are.

    ```mlir
    func.func @unpack(%packed: tensor<?x656xi8>) -> tensor<?x576xbf16> {
      %rows = shardq.unpack_rows %packed
          {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>}
          : (tensor<?x656xi8>) -> tensor<?x576xbf16>
      return %rows : tensor<?x576xbf16>
    }
    ```

    **Constraints:**
    - `packed` has the bytes of a row, the result its values
    - both agree in rows, and are of one view
  }];
  let arguments = (ins ShardQ_Shaped<[I8], [2]>:$packed, Variadic<MemRefRankOf<[BF16], [2]>>:$outs,
                       ShardQ_PackedRowsAttr:$format);
  let results = (outs Variadic<TensorRankOf<[BF16], [2]>>:$results);
  let assemblyFormat = [{
    $packed (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_PackRowsOp : ShardQ_TwoFormOp<"pack_rows", [
    DeclareOpInterfaceMethods<ShardQ_RowWiseOpInterface>]> {
  let summary = "packed rows of bf16 ones";
  let description = [{
    What a writer of a packed cache stores of `rows`. Each 128 values `x` of the latent part have a scale and bytes:

    - the scale is `max |x|` divided by the largest number of the format (448 or 127), in f32, and at least 2^-100, so that a
      group of zeros has one
    - a byte is `x / scale` in f32, rounded to the nearest number of the format, to an even one halfway
    - in a group with a NaN or an infinity the scale is NaN and the bytes are 0: all of it reads as NaN

    Values with rope are stored as they are.

    ```mlir
    func.func @pack(%rows: tensor<?x576xbf16>) -> tensor<?x656xi8> {
      %packed = shardq.pack_rows %rows
          {format = #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>}
          : (tensor<?x576xbf16>) -> tensor<?x656xi8>
      return %packed : tensor<?x656xi8>
    }
    ```

    **Constraints:**
    - `rows` has the values of a row, the result its bytes
    - both agree in rows, and are of one view
  }];
  let arguments = (ins ShardQ_Shaped<[BF16], [2]>:$rows, Variadic<MemRefRankOf<[I8], [2]>>:$outs,
                       ShardQ_PackedRowsAttr:$format);
  let results = (outs Variadic<TensorRankOf<[I8], [2]>>:$results);
  let assemblyFormat = [{
    $rows (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

#endif // SHARDQ_IR_SHARDQVIEWOPS
