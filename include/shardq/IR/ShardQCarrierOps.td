//===- ShardQCarrierOps.td - Host code of targets ----------*- tablegen -*-===//
//
// What only the host code of a target has, apart from the ops that every level
// knows: how exchanges are carried, what runs beside what, and checks of what a
// call is given.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_IR_SHARDQCARRIEROPS
#define SHARDQ_IR_SHARDQCARRIEROPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_IsCarriedOp : ShardQ_Op<"is_carried", [Pure]> {
  let summary = "whether NCCL carries the rows of a channel's exchanges";
  let description = [{
    Chosen by the runtime when the communicator is made, from what the plan's channel asks for and what the ranks
    can do, and the same on all ranks. Where it is false, ranks write into each other's memory.

    ```mlir
    func.func @form() -> i1 {
      %carried = shardq.is_carried channel 0 : i1
      return %carried : i1
    }
    ```

    **Constraints:**
    - `channel` is not negative
  }];
  let arguments = (ins I32Attr:$channel);
  let results = (outs I1:$result);
  let assemblyFormat = "`channel` $channel attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def ShardQ_TransferOp : ShardQ_Op<"transfer", [AllTypesMatch<["outbox", "landing"]>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "carries an exchange's rows by NCCL";
  let description = [{
    Sends row `i * rows` and those behind it of `outbox` to member `i` of the group, as many as
    this rank announced on the channel, and receives what the member announced into the same
    rows of `landing`:

    ```
     outbox                landing of rank 1
     | to 0 | to 1 | ..    | from 0 | from 1 | ..
               `-- rank 0 --->`
    ```

    A rank's own rows stay where they are: the kernel that packs writes them into the inbox.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @carry(%outbox: memref<?x16x576xbf16>, %landing: memref<?x16x576xbf16>) {
      shardq.transfer %outbox to %landing over @ranks "tp" channel 0 exchange 0 {rows = 128 : i64}
          : memref<?x16x576xbf16>
      return
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
    - `outbox` and `landing` are of one type, with the identity layout and static sizes
      behind dimension 0, of elements of whole bytes
    - `channel`, `exchange` and `rows` are not negative
  }];
  let arguments = (ins AnyStridedMemRef:$outbox, AnyStridedMemRef:$landing,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I32Attr:$channel,
                       I32Attr:$exchange, I64Attr:$rows);
  let assemblyFormat = [{
    $outbox `to` $landing `over` $mesh $axis `channel` $channel `exchange` $exchange attr-dict
    `:` type($outbox)
  }];
  let extraClassDeclaration = [{
    /// Bytes of one row.
    int64_t getRowBytes();
  }];
  let hasVerifier = 1;
}

def ShardQ_AsideOp : ShardQ_Op<"aside", [SingleBlock, NoTerminator]> {
  let summary = "launches beside those that follow";
  let description = [{
    What `body` launches, of an exchange on `channel`, runs in its order, behind everything before this op, and beside what stands
    behind it, up to the next `join_aside`. Memory that it uses is neither freed nor written in between. Where beside is of no
    use, as where NCCL carries the channel's rows, it runs in line.

    ```mlir
    func.func @beside(%rows: memref<8xf32>) {
      %one = arith.constant 1 : index
      shardq.aside channel 0 {
        gpu.launch blocks(%a, %b, %c) in (%d = %one, %e = %one, %f = %one)
                   threads(%x, %y, %z) in (%u = %one, %v = %one, %w = %one) {
          gpu.terminator
        }
      }
      shardq.join_aside
      return
    }
    ```

    **Constraints:**
    - `channel` is not negative
    - none stands in another
    - a `join_aside` stands behind it in its block, before any other `aside` there and with none in regions between
  }];
  let arguments = (ins I32Attr:$channel);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`channel` $channel $body attr-dict";
  let extraClassDeclaration = [{
    /// The other end.
    Operation *getJoin();
  }];
  let hasVerifier = 1;
}

def ShardQ_JoinAsideOp : ShardQ_Op<"join_aside"> {
  let summary = "what follows runs behind the launches aside";
  let description = [{
    The other end of `aside`: launches behind it run behind those aside, too.

    ```mlir
    func.func @beside() {
      shardq.aside channel 0 {
      }
      shardq.join_aside
      return
    }
    ```

    **Constraints:**
    - an `aside` stands before it in its block, and no other `join_aside` between
  }];
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def ShardQ_ExpectOp : ShardQ_Op<"expect", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "an error of the runtime unless two numbers are equal";
  let description = [{
    Records that `what` is `found`, where it is not `expected`, as an error of this rank that the call returns. Nothing stops: what
    follows must be right, if of no use, for any numbers. Numbers that only a GPU knows are not compared.

    Passes that take rows of lists say so what each list must have, since a missing row is padding to whoever takes it.

    ```mlir
    func.func @rows(%found: index, %expected: index) {
      shardq.expect "rows of 'req' of shardq.convert_indices" %found equals %expected
      return
    }
    ```

    **Constraints:**
    - none
  }];
  let arguments = (ins StrAttr:$what, Index:$found, Index:$expected);
  let assemblyFormat = "$what $found `equals` $expected attr-dict";
}

def ShardQ_BeyondTableOp : ShardQ_Op<"beyond_table"> {
  let summary = "an error of the runtime: a token to write is outside its table";
  let description = [{
    Records that the token of a row belongs to block `block` of request `request`, in a table of `requests` requests
    with `width` blocks each, as an error of this rank that the call returns. Nothing stops.

    ```mlir
    func.func @token(%request: index, %block: index, %requests: index, %width: index) {
      shardq.beyond_table block %block of %request in %requests, %width
      return
    }
    ```

    **Constraints:**
    - none
  }];
  let arguments = (ins Index:$block, Index:$request, Index:$requests, Index:$width);
  let assemblyFormat = "`block` $block `of` $request `in` $requests `,` $width attr-dict";
}

def ShardQ_NoPlaceOp : ShardQ_Op<"no_place"> {
  let summary = "an error of the runtime: a token to write has an entry that is no place";
  let description = [{
    Records that the token of a row belongs to block `block` of request `request`, for which the table has `entry`, as an
    error of this rank that the call returns: a negative entry is no block, and a slot in another may be more than the
    type of slots holds. Nothing stops.

    ```mlir
    func.func @token(%request: index, %block: index, %entry: index) {
      shardq.no_place block %block of %request entry %entry
      return
    }
    ```

    **Constraints:**
    - none
  }];
  let arguments = (ins Index:$block, Index:$request, Index:$entry);
  let assemblyFormat = "`block` $block `of` $request `entry` $entry attr-dict";
}

def ShardQ_BeyondCacheOp : ShardQ_Op<"beyond_cache"> {
  let summary = "an error of the runtime: a row to write has a slot that the cache has not";
  let description = [{
    Records that row `row` of those that are written has slot `slot`, in a cache of `rows` rows, as an error of this rank that
    the call returns. Nothing stops.

    ```mlir
    func.func @row(%slot: index, %row: index, %rows: index) {
      shardq.beyond_cache slot %slot of %row in %rows
      return
    }
    ```

    **Constraints:**
    - none
  }];
  let arguments = (ins Index:$slot, Index:$row, Index:$rows);
  let assemblyFormat = "`slot` $slot `of` $row `in` $rows attr-dict";
}

def ShardQ_CheckStartsOp : ShardQ_Op<"check_starts"> {
  let summary = "an error of the runtime unless the starts of a step add up";
  let description = [{
    Records an error of this rank, which the call returns, unless `query_start` ascends from 0 and ends at `rows` or before,
    and `decodes` is one of the starts, or from the last of them up to `rows`. Equal starts are requests without rows, as graphs are padded with; rows
    behind the last start are padding. Nothing stops.

    ```mlir
    func.func @step(%query_start: memref<?xi32>, %decodes: index, %rows: index) {
      shardq.check_starts %query_start decodes(%decodes) rows(%rows) : memref<?xi32>
      return
    }
    ```

    **Constraints:**
    - none
  }];
  let arguments = (ins MemRefRankOf<[I32], [1]>:$query_start, Index:$decodes, Index:$rows);
  let assemblyFormat = [{
    $query_start `decodes` `(` $decodes `)` `rows` `(` $rows `)` attr-dict `:` type($query_start)
  }];
}

#endif // SHARDQ_IR_SHARDQCARRIEROPS
