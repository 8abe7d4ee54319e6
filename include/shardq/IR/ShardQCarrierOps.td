//===- ShardQCarrierOps.td - Exchanges that NCCL carries ---*- tablegen -*-===//
//
// What only the host code of the GPU target has, apart from the ops that every
// level knows.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_IR_SHARDQCARRIEROPS
#define SHARDQ_IR_SHARDQCARRIEROPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_IsCarriedOp : ShardQ_Op<"is_carried", [Pure]> {
  let summary = "whether NCCL carries the rows of exchanges";
  let description = [{
    Chosen by the runtime when the communicator is made, and the same on all ranks. Where it
    is false, ranks write into each other's memory.

    ```mlir
    func.func @form() -> i1 {
      %carried = shardq.is_carried : i1
      return %carried : i1
    }
    ```

    **Constraints:**
    - none
  }];
  let results = (outs I1:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
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

#endif // SHARDQ_IR_SHARDQCARRIEROPS
