//===- ShardQAttrs.td - ShardQ attributes ------------------*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQATTRS
#define SHARDQ_IR_SHARDQATTRS

include "shardq/IR/ShardQDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/EnumAttr.td"

//===----------------------------------------------------------------------===//
// Enums
//===----------------------------------------------------------------------===//

def ShardQ_TokenOrder : I32EnumAttr<"TokenOrder", "which tokens of a request a rank owns", [
    I32EnumAttrCase<"Zigzag", 0, "zigzag">,
    I32EnumAttrCase<"Contiguous", 1, "contiguous">]> {
  let cppNamespace = "::mlir::shardq";
  let genSpecializedAttr = 0;
}

def ShardQ_LseBase : I32EnumAttr<"LseBase", "base of a logarithm of a sum of exponentials", [
    I32EnumAttrCase<"E", 0, "e">,
    I32EnumAttrCase<"Two", 1, "two">]> {
  let cppNamespace = "::mlir::shardq";
  let genSpecializedAttr = 0;
}

def ShardQ_Direction : I32EnumAttr<"Direction", "which sharding an exchange turns into which", [
    I32EnumAttrCase<"HeadsToTokens", 0, "heads_to_tokens">,
    I32EnumAttrCase<"TokensToHeads", 1, "tokens_to_heads">,
    I32EnumAttrCase<"GatherHeads", 2, "gather_heads">,
    I32EnumAttrCase<"ScatterHeads", 3, "scatter_heads">,
    I32EnumAttrCase<"GatherRows", 4, "gather_rows">,
    I32EnumAttrCase<"ScatterRows", 5, "scatter_rows">]> {
  let cppNamespace = "::mlir::shardq";
  let genSpecializedAttr = 0;
}

def ShardQ_Transport : I32EnumAttr<"Transport", "how the rows of a collective travel", [
    I32EnumAttrCase<"Direct", 0, "direct">,
    I32EnumAttrCase<"Nccl", 1, "nccl">,
    I32EnumAttrCase<"AgRs", 2, "ag_rs">,
    I32EnumAttrCase<"AgAr", 3, "ag_ar">]> {
  let cppNamespace = "::mlir::shardq";
  let genSpecializedAttr = 0;
}

def ShardQ_DirectionAttr : EnumAttr<ShardQ_Dialect, ShardQ_Direction, "direction"> {
  let summary = "direction of an exchange";
  let description = [{
    `heads_to_tokens` or `tokens_to_heads`, see `shardq.exchange`; `gather_heads`, see
    `shardq.gather_query`; `scatter_heads` and `scatter_rows`, see `shardq.combine_lse`; `gather_rows`, see
    `shardq.gather_rows` and `shardq.gather_kv_start`.
  }];
  let assemblyFormat = "$value";
}

def ShardQ_ChunkPart : I32EnumAttr<"ChunkPart", "rows of a step in chunks", [
    I32EnumAttrCase<"All", 0, "all">,
    I32EnumAttrCase<"Head", 1, "head">,
    I32EnumAttrCase<"Tail", 2, "tail">]> {
  let cppNamespace = "::mlir::shardq";
  let genSpecializedAttr = 0;
}

def ShardQ_ChunkPartAttr : EnumAttr<ShardQ_Dialect, ShardQ_ChunkPart, "chunk_part"> {
  let summary = "part of a step in chunks";
  let description = [{
    `all` rows; the decode requests with the `head` chunks; or the `tail` chunks. See `shardq.chunk_split`.
  }];
  let assemblyFormat = "$value";
}

def ShardQ_KvView : I32EnumAttr<"KvView", "which tokens a cache, its tables and its slots are of", [
    I32EnumAttrCase<"Replicated", 0, "replicated">]> {
  let cppNamespace = "::mlir::shardq";
  let genSpecializedAttr = 0;
}

def ShardQ_PackedOrder : I32EnumAttr<"PackedOrder", "what follows the values of a packed row", [
    I32EnumAttrCase<"ScalesRope", 0, "scales_rope">,
    I32EnumAttrCase<"RopeScales", 1, "rope_scales">]> {
  let cppNamespace = "::mlir::shardq";
  let genSpecializedAttr = 0;
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

def ShardQ_KvGather : TypeDef<ShardQ_Dialect, "KvGather"> {
  let mnemonic = "kv_gather";
  let summary = "a gather of KV rows that is under way";
  let description = [{
    What `shardq.gather_kv_start` returns and one `shardq.gather_kv_finish` of the same block takes. It
    is no memory and passes no function or block boundary.
  }];
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class ShardQ_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<ShardQ_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def ShardQ_AxisAttr : ShardQ_Attr<"Axis", "axis"> {
  let summary = "one named axis of a mesh";
  let description = [{
    `#shardq.axis<"tp" = 8>`, or `#shardq.axis<"dcp" = 4 in "tp">` for a sub-axis:
    its groups are runs of `size` consecutive ranks inside each group of the parent.
    `#shardq.axis<"kv" = 8 of "pcp", "dcp">` joins axes: its groups are those of all of them together,
    the first slowest.

    **Constraints:**
    - the name is not empty
    - the size is positive
    - it has a parent, or parts, or neither
  }];
  let parameters = (ins StringRefParameter<"name">:$name, "int64_t":$size,
                        OptionalParameter<"StringAttr">:$parent,
                        OptionalArrayRefParameter<"StringAttr">:$parts);
  let assemblyFormat = "`<` $name `=` $size (`in` $parent^)? (`of` $parts^)? `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Neither part of another axis nor made of others.
    bool isTop() const { return !getParent() && getParts().empty(); }
  }];
}

def ShardQ_ShardingAttr : ShardQ_Attr<"Sharding", "sharding"> {
  let summary = "how an attention op is divided over the ranks of a mesh";
  let description = [{
    `heads`: this rank computes a contiguous block of the heads, in rank order.
    `tokens`: this rank computes all heads of the rows it owns under the named order: `zigzag`, see
    `shardq.zigzag_split`; or `contiguous`, of a step whose rows are padded to a multiple of the ranks,
    a run of equally many on each rank, in rank order.
    `kv`: the KV cache is divided too. Of the `N` ranks along the axis, token `t` of a request
    is kept by `(t / interleave) % N`, as its token `(t / (N*interleave)) * interleave + t % interleave`.

    ```mlir
    #shardq.sharding<@ranks, heads = ["tp"]>
    #shardq.sharding<@ranks, tokens = zigzag ["tp"]>
    #shardq.sharding<@ranks, tokens = contiguous ["dcp"], kv = interleave<64> ["dcp"]>
    #shardq.sharding<@ranks, heads = ["tp"], kv = interleave<64> ["dcp"]>
    ```

    **Constraints:**
    - exactly one of `heads` and `tokens` is given
    - each of them names an axis at most once, and at least one
    - `interleave` is positive
  }];
  let parameters = (ins "FlatSymbolRefAttr":$mesh,
                        OptionalArrayRefParameter<"StringAttr">:$heads,
                        "std::optional<TokenOrder>":$order,
                        OptionalArrayRefParameter<"StringAttr">:$tokens,
                        "int64_t":$interleave,
                        OptionalArrayRefParameter<"StringAttr">:$kv);
  let builders = [AttrBuilder<(ins "FlatSymbolRefAttr":$mesh, "ArrayRef<StringAttr>":$heads,
                                   "std::optional<TokenOrder>":$order,
                                   "ArrayRef<StringAttr>":$tokens), [{
    return $_get($_ctxt, mesh, heads, order, tokens, int64_t(0), ArrayRef<StringAttr>());
  }]>];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isOverHeads() const { return !getHeads().empty(); }
    bool isOverTokens() const { return !getTokens().empty(); }
    bool isOverKv() const { return !getKv().empty(); }
    /// The axes of heads or tokens, whichever are divided.
    ::llvm::ArrayRef<StringAttr> getAxes() const {
      return isOverHeads() ? getHeads() : getTokens();
    }
  }];
}

def ShardQ_SplitAttr : ShardQ_Attr<"Split", "split"> {
  let summary = "a function argument or result is this rank's block of a global array";
  let description = [{
    Stands as `shardq.split` on function arguments and results: dimension `dim` of the
    global array is cut into equal contiguous blocks over the axis, in rank order.
    Without it the array is the same on every rank. `shardq-run` splits and
    reassembles global arrays by it.

    ```mlir
    func.func @f(%q: tensor<?x16x512xbf16> {shardq.split = #shardq.split<@ranks, 1 over "tp">})
    ```

    **Constraints:**
    - the dimension is not negative
    - on a function: the dimension exists in the type, and the mesh has the axis
  }];
  let parameters = (ins "FlatSymbolRefAttr":$mesh, "int64_t":$dim, "StringAttr":$axis);
  let assemblyFormat = "`<` $mesh `,` $dim `over` $axis `>`";
  let genVerifyDecl = 1;
}

def ShardQ_SymmetricAttr : ShardQ_Attr<"Symmetric", "symmetric"> {
  let summary = "memory space of exchange buffers: the same offset on every rank of a mesh";
  let description = [{
    A memref in this space lies in the symmetric heap. `peer_view` gives the buffer at
    the same offset of another rank. On every target the address is an ordinary one,
    so `memref.memory_space_cast` to the default space is free.
  }];
  let parameters = (ins "FlatSymbolRefAttr":$mesh);
  let assemblyFormat = "`<` $mesh `>`";
}

def ShardQ_LseAttr : ShardQ_Attr<"Lse", "lse"> {
  let summary = "base of the LSE that an attention op returns";
  let description = [{
    `#shardq.lse<base = e>` (natural logarithm) or `#shardq.lse<base = two>`.
  }];
  let parameters = (ins EnumParameter<ShardQ_LseBase>:$base);
  let assemblyFormat = "`<` `base` `=` $base `>`";
}

def ShardQ_TransportAttr : ShardQ_Attr<"Transport", "transport"> {
  let summary = "how the rows of a collective travel, and why";
  let description = [{
    Of a collective of level 2, and of the `push` that it becomes:

    - `direct`: ranks write into each other's memory. Where they cannot, the runtime lets NCCL carry the
      rows of all exchanges of the communicator
    - `nccl`: NCCL carries the rows, whatever the ranks could do; on one host others of the program are as direct as before
    - `ag_rs`: `combine_lse` as an all-gather of LSEs, local weights, and a reduce-scatter of outputs
    - `ag_ar`: the same with an all-reduce, where each rank keeps all heads

    The reason is for people; `--shardq-select-transport` writes both.

    ```mlir
    #shardq.transport<nccl>
    #shardq.transport<direct, "ranks of one host write into each other's memory">
    ```

    **Constraints:**
    - `ag_rs` and `ag_ar` stand on `combine_lse` only
  }];
  let parameters = (ins EnumParameter<ShardQ_Transport>:$value,
                        OptionalParameter<"StringAttr">:$reason);
  let assemblyFormat = "`<` $value (`,` $reason^)? `>`";
}

def ShardQ_ChannelAttr : ShardQ_Attr<"Channel", "channel"> {
  let summary = "one inbox of the symmetric workspace";
  let description = [{
    `name` is for people. The inbox lies `offset` bytes into the slot, each of its
    `generations` (1 or 2) is `bytes` long. One exchange is in flight per channel and
    slot. `--shardq-plan-workspace` chooses one generation where it proves that the
    exchanges around each use acknowledge the buffer, and two elsewhere. `transport` stands where the exchanges on
    it ask for NCCL, which then carries their rows on every communicator; those on other channels are direct where ranks reach
    each other's memory.

    ```mlir
    #shardq.channel<"gather_heads 64x576xbf16", offset = 0, bytes = 73728, generations = 1>
    #shardq.channel<"gather_heads 64x576xbf16 by nccl", offset = 73728, bytes = 73728, generations = 2, transport = <nccl>>
    ```

    **Constraints:**
    - `generations` is 1 or 2
    - `offset` and `bytes` are not negative, and multiples of 256
    - `transport` is `nccl`, where there is one
  }];
  let parameters = (ins StringRefParameter<"name">:$name, "int64_t":$offset,
                        "int64_t":$bytes, "int64_t":$generations,
                        OptionalParameter<"::mlir::shardq::TransportAttr">:$transport);
  let assemblyFormat = "`<` $name `,` struct($offset, $bytes, $generations, $transport) `>`";
  let extraClassDeclaration = [{
    /// Whether its exchanges ask for NCCL.
    bool isCarried() const { return static_cast<bool>(getTransport()); }
  }];
  let genVerifyDecl = 1;
}

def ShardQ_ViewAttr : ShardQ_Attr<"View", "view"> {
  let summary = "encoding of tables, slots and caches: whose tokens they are of";
  let description = [{
    Stands as the encoding of a tensor. Of a cache that every rank has whole (the indexer's keys), and of the
    block tables and slots that find rows in it, `replicated`. Tensors without it are of a cache as its rank
    has it. Ops in which tables, slots and caches meet check that they are of one kind, and `--shardq-verify-views` that
    no slice or reshape on the way to them has a result of another kind than its source. Buffers have no
    encoding; `tensor.cast` may change it, for values whose kind a program knows and types do not.

    ```mlir
    func.func @write(%keys: tensor<?x128xbf16>, %slots: tensor<?xi64, #shardq.view<replicated>>,
                     %cache: tensor<?x128xbf16, #shardq.view<replicated>>)
        -> tensor<?x128xbf16, #shardq.view<replicated>> {
      %written = shardq.write_rows %keys at(%slots) into(%cache)
          : (tensor<?x128xbf16>, tensor<?xi64, #shardq.view<replicated>>,
             tensor<?x128xbf16, #shardq.view<replicated>>) -> tensor<?x128xbf16, #shardq.view<replicated>>
      return %written : tensor<?x128xbf16, #shardq.view<replicated>>
    }
    ```
  }];
  let parameters = (ins EnumParameter<ShardQ_KvView>:$value);
  let assemblyFormat = "`<` $value `>`";
}

def ShardQ_PackedRowsAttr : ShardQ_Attr<"PackedRows", "packed_rows"> {
  let summary = "layout of KV rows of 8-bit values with scales";
  let description = [{
    A row of bytes holds `latent` values of 8 bits, first; one f32 scale for each 128 of them; and `rope` values of
    bf16. The order says which of the two comes first behind the values. The size does not: both of

    ```mlir
    #shardq.packed_rows<512 x f8E4M3FN, rope = 64, order = scales_rope>
    #shardq.packed_rows<512 x i8, rope = 64, order = rope_scales>
    ```

    are of 656 bytes. Numbers have their lowest byte first.

    **Constraints:**
    - values are of f8E4M3FN or i8
    - `latent` is a positive multiple of 128
    - `rope` is even, so that scales stand at multiples of their size
    - neither is above 2^20
  }];
  let parameters = (ins "int64_t":$latent, "Type":$element, "int64_t":$rope,
                        EnumParameter<ShardQ_PackedOrder>:$order);
  let assemblyFormat = [{
    `<` $latent `x` $element `,` `rope` `=` $rope `,` `order` `=` $order `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Values that share a scale.
    static constexpr int64_t kGroup = 128;
    int64_t getNumGroups() const { return getLatent() / kGroup; }
    /// Values of an unpacked row.
    int64_t getDim() const { return getLatent() + getRope(); }
    int64_t getNumBytes() const { return getLatent() + 4 * getNumGroups() + 2 * getRope(); }
    /// Where scales and rope begin, in bytes.
    int64_t getScaleOffset() const {
      return getLatent() + (getOrder() == PackedOrder::RopeScales ? 2 * getRope() : 0);
    }
    int64_t getRopeOffset() const {
      return getLatent() + (getOrder() == PackedOrder::ScalesRope ? 4 * getNumGroups() : 0);
    }
    bool isOfFloats() const { return !getElement().isInteger(8); }
    /// The largest value that `element` holds.
    int64_t getLargest() const { return isOfFloats() ? 448 : 127; }
  }];
}

#endif // SHARDQ_IR_SHARDQATTRS
