//===- ShardQChunkOps.td - Level 2: chunks of requests -----*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQCHUNKOPS
#define SHARDQ_IR_SHARDQCHUNKOPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_CountChunkRowsOp : ShardQ_Op<"count_chunk_rows", [
    DeclareOpInterfaceMethods<ConditionallySpeculatable>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>] # ShardQ_OnAxis> {
  let summary = "rows that each rank has of a step in chunks";
  let description = [{
    The rows of `chunk_split`, the same on every rank: those of decode requests, and `2*ceil(len/2P)` of
    each prefill request of `len` tokens. `head` counts the rows of decode requests and head chunks alone,
    `tail` those of tail chunks.

    ```mlir
    shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
    func.func @count(%query_start: tensor<?xi32>, %decodes: index, %rows: index) -> index {
      %n = shardq.count_chunk_rows all %query_start decodes(%decodes) rows(%rows) over @ranks "pcp"
          : tensor<?xi32>
      return %n : index
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
  }];
  let arguments = (ins ShardQ_ChunkPartAttr:$part, ShardQ_IntVector:$query_start, Index:$decodes,
                       Index:$rows, FlatSymbolRefAttr:$mesh, StrAttr:$axis);
  let results = (outs Index:$result);
  let assemblyFormat = [{
    $part $query_start `decodes` `(` $decodes `)` `rows` `(` $rows `)` `over` $mesh $axis attr-dict
    `:` type($query_start)
  }];
}

def ShardQ_ChunkSplitOp : ShardQ_TwoFormOp<"chunk_split", ShardQ_OnAxis> {
  let summary = "which rows of the step a rank has, in chunks";
  let description = [{
    With `P` the size of the axis, a prefill request of `len` tokens is padded to the next multiple of
    `2P` and cut into `2P` chunks of `c = ceil(len/2P)` tokens. Rank `p` has chunk `p` (its head) and
    chunk `2P-1-p` (its tail). Decode requests (up to row `decodes`) are whole on every rank. So all
    ranks have equally many rows.

    ```
      request, c = 2:   | 0 1 | 2 3 | 4 5 | 6 7 | 8 9 | . . | . . | . . |     P = 4
      rank:                0     1     2     3     3     2     1     0
    ```

    - `mine`: the step row of each row of this rank, -1 for padding; request after request, head before
      tail; with `by_part` decode requests, then all heads, then all tails
    - `restore` `[rows]`: where each row of the step stands in the rows of all ranks, rank after rank
      (`gather_rows`): of decode requests rank 0's copies; -1 for rows of no request

    So `take_rows %all[%restore]`, with `%all` the gathered rows of what was computed on `take_rows %x[%mine]`,
    has the rows of the step again. With a result of another size, rows behind it are not there. Starts that do
    not ascend from 0 or end beyond `rows`, and `decodes` below 0, within a request or beyond `rows`, are an
    error of the runtime; a request then begins where the ones before it end at the earliest.

    ```mlir
    shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
    func.func @split(%query_start: tensor<?xi32>, %decodes: index, %rows: index)
        -> (tensor<?xi32>, tensor<?xi32>) {
      %mine, %restore = shardq.chunk_split %query_start decodes(%decodes) rows(%rows) over @ranks "pcp"
          : (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)
      return %mine, %restore : tensor<?xi32>, tensor<?xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
  }];
  let arguments = (ins ShardQ_IntVector:$query_start, Index:$decodes, Index:$rows,
                       Variadic<MemRefRankOf<[I32], [1]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, UnitAttr:$by_part);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $query_start `decodes` `(` $decodes `)` `rows` `(` $rows `)` `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_ChunkLengthsOp : ShardQ_TwoFormOp<"chunk_lengths", ShardQ_OnAxis> {
  let summary = "query starts and key lengths of the head or tail chunks";
  let description = [{
    For one attention call over the head chunks (with the decode requests) and one over the tail chunks
    of this rank, each with a causal mask that is aligned to the right: row `j` of `n` sees
    `length - n + j + 1` keys, which is what `expand_rows` says of the results.

    - `starts` `[R+1]`: first row of each request in the call
    - `lengths` `[R]`: with `C = seq_lens - len` computed tokens, `C + c*(p+1)` of a head, `C + c*(2P-p)`
      of a tail. May be beyond the sequence by padding: clamped, the mask would shift. Those of decode
      requests are `seq_lens`; 0 where the call has no rows
    - `own`: for each row of the call its number, -1 for padding. `take_rows` by it masks padded rows, which
      would see keys otherwise

    ```mlir
    shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
    func.func @tails(%query_start: tensor<?xi32>, %seq_lens: tensor<?xi32>, %decodes: index, %rows: index)
        -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>) {
      %starts, %lengths, %own = shardq.chunk_lengths tail %query_start, %seq_lens decodes(%decodes)
          rows(%rows) over @ranks "pcp" : (tensor<?xi32>, tensor<?xi32>, index, index)
          -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>)
      return %starts, %lengths, %own : tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - the part is `head` or `tail`
    - `query_start` has one entry more than `seq_lens`; `starts` the shape of `query_start`, `lengths` that of
      `seq_lens`
  }];
  let arguments = (ins ShardQ_ChunkPartAttr:$part, ShardQ_IntVector:$query_start,
                       ShardQ_IntVector:$seq_lens, Index:$decodes, Index:$rows,
                       Variadic<MemRefRankOf<[I32], [1]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis);
  let results = (outs Variadic<TensorRankOf<[I32], [1]>>:$results);
  let assemblyFormat = [{
    $part $query_start `,` $seq_lens `decodes` `(` $decodes `)` `rows` `(` $rows `)` `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_ChunkSlotsOp : ShardQ_TwoFormOp<"chunk_slots", ShardQ_OnAxis> {
  let summary = "where gathered KV rows of chunks are written";
  let description = [{
    `slots` `[T]` has the slot of each row of the step. The padded buffer has, request after
    request, the padded tokens of a prefill request in their order, and of a decode of `n` tokens `n*P`
    rows, the copies of rank 0 first.

    - `order` `[P*local]`: the row of the gathered rows (`local` of each rank, see `chunk_split`) that each row of the
      padded buffer is
    - `padded` `[P*local]`: its slot: of prefill requests those of their tokens, of decodes the first `n`
      rows; -1 for padding and copies

    With `own_decodes` the rows of all decodes stand together in front, rank 0's copies first, and then those of the other
    ranks. This is the order for a writer that runs before the gather and finds the slots of its own decode rows in front.

    ```
      decodes of 2 and 1 tokens with slots 10 30 50, P = 2     padded  10 30 -1 -1 50 -1    own_decodes  10 30 50 -1 -1 -1
    ```

    So each token is written once, as by the step that is not split:
    `write_rows (take_rows %gathered[%order]) at(%padded)`. With `by_part` the local rows are those of a `chunk_split`
    with it.

    Fewer rows, in `local` or in the results, than the step's requests have are an error of the runtime: a token would
    lose its place.

    ```mlir
    shardq.mesh @ranks ["pcp" = 2, "tp" = 4]
    func.func @slots(%slots: tensor<?xi64>, %query_start: tensor<?xi32>, %decodes: index, %local: index)
        -> (tensor<?xi32>, tensor<?xi64>) {
      %order, %padded = shardq.chunk_slots %slots by(%query_start) decodes(%decodes) local(%local)
          over @ranks "pcp" : (tensor<?xi64>, tensor<?xi32>, index, index)
          -> (tensor<?xi32>, tensor<?xi64>)
      return %order, %padded : tensor<?xi32>, tensor<?xi64>
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `order` is of i32, `padded` of the element type and the view of `slots`; both agree in rows
  }];
  let arguments = (ins ShardQ_Shaped<[I32, I64], [1]>:$slots, ShardQ_IntVector:$query_start,
                       Index:$decodes, Index:$local,
                       Variadic<MemRefRankOf<[I32, I64], [1]>>:$outs,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, UnitAttr:$by_part,
                       UnitAttr:$own_decodes);
  let results = (outs Variadic<TensorRankOf<[I32, I64], [1]>>:$results);
  let assemblyFormat = [{
    $slots `by` `(` $query_start `)` `decodes` `(` $decodes `)` `local` `(` $local `)` `over` $mesh $axis
    (`outs` `(` $outs^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}

def ShardQ_WriteRowsOp : ShardQ_Op<"write_rows", [
    DeclareOpInterfaceMethods<ConditionallySpeculatable>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "writes rows into a cache by their slots";
  let description = [{
    The cache with `cache[slots[i], ...] = source[i, ...]` for every `i` whose slot is a row of the cache.
    Rows of negative slots are padding, and not written. A slot beyond the cache is an error of the runtime,
    since its row is lost; the other rows are written. Where two rows have one slot, the later one is there.

    On buffers the cache is written in place. On tensors it is too, unless the old one is still read.

    ```mlir
    func.func @write(%rows: tensor<?x576xbf16>, %slots: tensor<?xi64>, %kv: tensor<?x576xbf16>)
        -> tensor<?x576xbf16> {
      %written = shardq.write_rows %rows at(%slots) into(%kv)
          : (tensor<?x576xbf16>, tensor<?xi64>, tensor<?x576xbf16>) -> tensor<?x576xbf16>
      return %written : tensor<?x576xbf16>
    }
    ```

    **Constraints:**
    - all operands are tensors and there is a result, or all are buffers and there is none
    - the result has the type of `cache`
    - `source` and `cache` have one element type and, behind dimension 0, one static shape
    - `source` and `slots` agree in rows
    - `slots` and `cache` are of one view
    - `slots` are of i64 where `cache` has 2^31 rows or more
  }];
  let arguments = (ins ShardQ_Shaped<ShardQ_MovedElements, [2, 3]>:$source,
                       ShardQ_Shaped<[I32, I64], [1]>:$slots,
                       ShardQ_Shaped<ShardQ_MovedElements, [2, 3]>:$cache);
  let results = (outs Optional<TensorRankOf<ShardQ_MovedElements, [2, 3]>>:$result);
  let assemblyFormat = [{
    $source `at` `(` $slots `)` `into` `(` $cache `)` attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isOnBuffers() { return ::llvm::isa<MemRefType>(getCache().getType()); }
  }];
}

#endif // SHARDQ_IR_SHARDQCHUNKOPS
