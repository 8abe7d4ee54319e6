//===- ShardQBufferOps.td - Level 3: symmetric buffers -----*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQBUFFEROPS
#define SHARDQ_IR_SHARDQBUFFEROPS

include "shardq/IR/ShardQOpBase.td"

def ShardQ_PlanOp : ShardQ_Op<"plan", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the symmetric workspace and the exchanges of a module";
  let description = [{
    What the runtime makes the heap from, and what rendezvous compares: `slots` slots (one
    per micro-batch in flight) of `slot_bytes` each, the channels in them, the name of every
    exchange, and a hash of all of it with the exchanges' shapes. An `exchange` number of
    `push`, `signal` and `wait` indexes `exchanges`, a `channel` number `channels`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    shardq.plan @plan over @ranks {
      channels = [#shardq.channel<"heads_to_tokens 128x576xbf16", offset = 0, bytes = 36864, generations = 1>],
      exchanges = ["heads_to_tokens exchange 0 of @attention"],
      hash = 7 : i64, slot_bytes = 36864 : i64, slots = 1 : i64}
    ```

    **Constraints:**
    - the mesh exists
    - `slots` is positive, and the channels lie within `slot_bytes`, in order of
      their offsets, and do not overlap
    - a module has at most one plan
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$mesh, I64Attr:$slots,
                       I64Attr:$slot_bytes, I64Attr:$hash,
                       TypedArrayAttrBase<ShardQ_ChannelAttr, "channels">:$channels,
                       StrArrayAttr:$exchanges, OptionalAttr<StrAttr>:$sym_visibility);
  let assemblyFormat = "$sym_name `over` $mesh attr-dict";
  let hasVerifier = 1;
}

def ShardQ_RankOp : ShardQ_Op<"rank", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "this rank's coordinate along an axis, or its number in the mesh";
  let description = [{
    Between 0 and the size of the axis (of the mesh), exclusive.

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @me() -> (index, index) {
      %rank = shardq.rank over @ranks
      %coordinate = shardq.rank over @ranks "dcp"
      return %rank, %coordinate : index, index
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis
  }];
  let arguments = (ins FlatSymbolRefAttr:$mesh, OptionalAttr<StrAttr>:$axis);
  let results = (outs Index:$result);
  let assemblyFormat = "`over` $mesh ($axis^)? attr-dict";
  let hasCanonicalizeMethod = 1;
}

def ShardQ_WorkspaceOp : ShardQ_Op<"workspace", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "this rank's inbox for the next exchange on a channel";
  let description = [{
    The view of the channel's buffer that the next exchange on it will fill. With two
    generations it alternates, so it is read after the previous `wait` on the channel
    and before the next `signal`.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    shardq.plan @plan over @ranks {
      channels = [#shardq.channel<"q", offset = 0, bytes = 147456, generations = 2>],
      exchanges = [], hash = 7 : i64, slot_bytes = 294912 : i64, slots = 1 : i64}
    func.func @inbox(%rows: index) {
      %inbox = shardq.workspace @plan channel 0 (%rows)
          : memref<?x128x576xbf16, #shardq.symmetric<@ranks>>
      return
    }
    ```

    **Constraints:**
    - the plan exists and has the channel
    - the result is in symmetric memory of the plan's mesh, with the identity layout
    - there is one size for each dynamic dimension
    - elements are whole bytes, and one row (everything behind dimension 0; all rows, if
      static) fits the channel
  }];
  let arguments = (ins FlatSymbolRefAttr:$plan, I32Attr:$channel, Variadic<Index>:$sizes);
  let results = (outs AnyStridedMemRef:$result);
  let assemblyFormat = [{
    $plan `channel` $channel (`(` $sizes^ `)`)? attr-dict `:` type($result)
  }];
  let hasVerifier = 1;
}

class ShardQ_ProtocolOp<string opMnemonic, list<Trait> traits = []>
    : ShardQ_Op<opMnemonic, [AttrSizedOperandSegments,
                             DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                             DeclareOpInterfaceMethods<SymbolUserOpInterface>] # traits> {
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether a zigzag split says which rows go where; all rows go everywhere
    /// otherwise.
    bool isByOffsets() {
      return getDirection() == Direction::HeadsToTokens ||
             getDirection() == Direction::TokensToHeads;
    }
  }];
}

def ShardQ_PushOp : ShardQ_ProtocolOp<"push"> {
  let summary = "writes an exchange's rows into the inboxes of the group";
  let description = [{
    The data part of the buffer forms of `exchange`, `gather_query`, `combine_lse`, `reduce_heads`, `gather_rows` and
    `gather_kv_start`: writes each row straight into the owner's copy of `inbox`, own rows included; peers in
    rotated order, `rank+1`, `rank+2`, ... A step whose inbox would not fit the channel writes
    nothing and is an error of the runtime (a gate keeps such steps out of `exchange`).

    `gather_heads`: the head blocks of all `T` rows go to every member, into the inbox
    `[T, H, sum of d]`; with `padded_heads` it may have more heads, which are not written. `scatter_heads`: sources are
    the partial output `[T, H, d]` and its LSE
    `[T, H]`; each member gets its `H/N` heads of all rows, as rows `me*T .. me*T + T` of its
    inbox `[N*T, H/N, d + p]`, where `p` elements are 16 bytes that begin with the LSE as f32. Without
    an LSE the inbox is `[N*T, H/N, d]`. `scatter_rows`: of the same sources, each member gets its `n = T/N` rows with all
    heads, as rows `me*n .. me*n + n` of its inbox `[N*n, H, d + p]`.
    `gather_rows`: all `n` rows of the sources go to every member, as rows `me*n .. me*n + n` of its inbox
    `[N*n, sum of d]` or `[N*n, H, sum of d]`. With `blocks` those of the blocks, `[N*n, sum of d]`; the inbox's size says how
    many blocks there are.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @push(%q: memref<?x16x576xbf16>, %ids: memref<?xi32>, %offsets: memref<9xi32>,
                    %decodes: index, %inbox: memref<?x128x576xbf16, #shardq.symmetric<@ranks>>) {
      shardq.push heads_to_tokens(%q) by(%ids, %offsets) decodes(%decodes) into(%inbox)
          over @ranks "tp" channel 0 exchange 0 {capacity = 1024 : i64}
          : (memref<?x16x576xbf16>), memref<?xi32>, memref<9xi32>,
            memref<?x128x576xbf16, #shardq.symmetric<@ranks>>
      return
    }
    ```

    ```mlir
    shardq.mesh @ranks ["tp" = 8, "dcp" = 4 in "tp"]
    func.func @gather(%q: memref<?x16x576xbf16>,
                      %inbox: memref<?x64x576xbf16, #shardq.symmetric<@ranks>>) {
      shardq.push gather_heads(%q) into(%inbox) over @ranks "dcp" channel 0 exchange 0
          {capacity = 1024 : i64}
          : (memref<?x16x576xbf16>), memref<?x64x576xbf16, #shardq.symmetric<@ranks>>
      return
    }
    ```

    **Constraints:**
    - those of the buffer form of the op it comes from, with `inbox` for its destination
    - `ids`, `offsets` and `decodes` stand with the directions of `exchange` only
    - `blocks` and `block_size` stand together and with `gather_rows` only, `block_stride_rows` with them
    - `inbox` is in symmetric memory of the mesh
    - `capacity`, in rows of the inbox, is not negative; of `gather_rows` and `scatter_rows` a multiple of the ranks
    - `transport`, where chosen, is `direct` or `nccl`
  }];
  let arguments = (ins ShardQ_DirectionAttr:$direction,
                       Variadic<MemRefRankOf<ShardQ_GatheredElements, [2, 3]>>:$sources,
                       Optional<MemRefRankOf<[I32], [1]>>:$ids,
                       Optional<MemRefRankOf<[I32], [1]>>:$offsets, Optional<Index>:$decodes,
                       Optional<MemRefRankOf<[I32], [1]>>:$blocks,
                       MemRefRankOf<ShardQ_GatheredElements, [2, 3]>:$inbox,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I32Attr:$channel,
                       I32Attr:$exchange, I64Attr:$capacity, OptionalAttr<I64Attr>:$block_size,
                       OptionalAttr<I64Attr>:$block_stride_rows,
                       OptionalAttr<ShardQ_TransportAttr>:$transport, UnitAttr:$padded_heads);
  let assemblyFormat = [{
    custom<Direction>($direction) `(` $sources `)`
    (`by` `(` $ids^ `,` $offsets `)` `decodes` `(` $decodes `)`)?
    (`blocks` `(` $blocks^ `)`)? `into` `(` $inbox `)` `over` $mesh $axis `channel` $channel `exchange` $exchange attr-dict
    `:` custom<PushTypes>(type($sources), type($ids), type($offsets), type($blocks), type($inbox))
  }];
}

class ShardQ_FlagOp<string opMnemonic> : ShardQ_ProtocolOp<opMnemonic> {
  let arguments = (ins ShardQ_DirectionAttr:$direction,
                       Optional<MemRefRankOf<[I32], [1]>>:$offsets, Optional<Index>:$rows,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis, I32Attr:$channel,
                       I32Attr:$exchange);
  let assemblyFormat = [{
    custom<Direction>($direction) (`by` `(` $offsets^ `)`)? (`rows` `(` $rows^ `)`)?
    `over` $mesh $axis `channel` $channel `exchange` $exchange attr-dict (`:` type($offsets)^)?
  }];
}

def ShardQ_SignalOp : ShardQ_FlagOp<"signal"> {
  let summary = "tells the group that this rank's rows have arrived";
  let description = [{
    Release-stores the channel's next epoch into every member's memory, with the number
    of rows pushed to it and the exchange, so that a peer which runs another exchange
    or another step is an error and not garbage. A rank with no rows signals too.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @signal(%offsets: memref<9xi32>) {
      shardq.signal heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0
          : memref<9xi32>
      return
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis; `offsets` has one entry more than its size
    - `offsets` stands with the directions of `exchange`, `rows`, the rows that each member
      pushes to each, with the others
    - `channel` and `exchange` are not negative
  }];
}

def ShardQ_WaitOp : ShardQ_FlagOp<"wait"> {
  let summary = "waits until every member's rows have arrived";
  let description = [{
    Waits for the channel's current epoch from every member, with acquire loads and a
    deadline. After a failure the inbox is poisoned, the runtime holds the error, and
    later exchanges return at once.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @wait(%offsets: memref<9xi32>) {
      shardq.wait heads_to_tokens by(%offsets) over @ranks "tp" channel 0 exchange 0
          : memref<9xi32>
      return
    }
    ```

    **Constraints:**
    - the mesh exists and has the axis; `offsets` has one entry more than its size
    - `offsets` stands with the directions of `exchange`, `rows`, the rows that each member
      pushes to each, with the others
    - `channel` and `exchange` are not negative
  }];
}

def ShardQ_PeerViewOp : ShardQ_Op<"peer_view", [Pure, AllTypesMatch<["source", "result"]>]> {
  let summary = "the buffer at the same place in another rank's heap";
  let description = [{
    `peer` is a rank number in the mesh. Only addresses: nothing is transferred. The sizes
    are those of the own view; the peer's own rows may be fewer or more.

    ```mlir
    shardq.mesh @ranks ["tp" = 8]
    func.func @theirs(%inbox: memref<?x576xbf16, #shardq.symmetric<@ranks>>, %peer: index)
        -> memref<?x576xbf16, #shardq.symmetric<@ranks>> {
      %theirs = shardq.peer_view %inbox[%peer] : memref<?x576xbf16, #shardq.symmetric<@ranks>>
      return %theirs : memref<?x576xbf16, #shardq.symmetric<@ranks>>
    }
    ```

    **Constraints:**
    - `source` is in symmetric memory
  }];
  let arguments = (ins AnyStridedMemRef:$source, Index:$peer);
  let results = (outs AnyStridedMemRef:$result);
  let assemblyFormat = "$source `[` $peer `]` attr-dict `:` type($source)";
  let hasVerifier = 1;
}

def ShardQ_DeviceContextOp : ShardQ_Op<"device_context", [Pure]> {
  let summary = "address of the runtime's state in device memory";
  let description = [{
    What kernels hand to the device library: where inboxes, flags and epochs of this rank's
    slot are. It stays the same for as long as the communicator lives.

    ```mlir
    func.func @state() -> index {
      %state = shardq.device_context : index
      return %state : index
    }
    ```

    **Constraints:**
    - none
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

#endif // SHARDQ_IR_SHARDQBUFFEROPS
