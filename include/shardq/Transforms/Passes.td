//===- Passes.td - Passes inside the ShardQ dialect --------*- tablegen -*-===//

#ifndef SHARDQ_TRANSFORMS_PASSES
#define SHARDQ_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def ShardQTokens : Pass<"shard-q-tokens", "::mlir::ModuleOp"> {
  let summary = "Turns head-sharded sparse MLA into zigzag token shards with exchanges";
  let description = [{
    For each `sparse_mla` whose heads are sharded over the axis, versions the attention
    and the indexer that feeds it under a `split_gate`:

    ```mlir
    // once per step
    %decodes = shardq.count_decode_rows %query_start
    %ids, %offsets = shardq.zigzag_split %query_start decodes(%decodes) rows(%rows) over @ranks "tp"
    %mine = shardq.local_rows %ids, %offsets decodes(%decodes) over @ranks "tp"
    %gate = shardq.split_gate offsets(%offsets) ...
    // per attention
    %out = scf.if %gate {
      // indexer, conversion on take_rows of their row operands
      // q heads_to_tokens, attention with all heads on own prefill rows
      // attention with own heads on decode rows
      // out tokens_to_heads
    } else {
      // the original ops
    }
    ```

    The step's description is the `expand_rows` that the op's `rows` or the producers of
    its slots refer to. Row operands that come from elsewhere (arguments, other ops)
    are taken by rows; index ops that several attentions share are versioned once and
    shared. A `gather_kv_finish` whose keys only the attention reads moves into both branches, with its start, so that
    the gather overlaps with the indexer and the exchange of queries; with `decode-rows=combine` decode rows then attend
    the keys that their ranks keep, with a merge, as `--shardq-dcp` does it in decode steps. An attention that cannot be
    rewritten stays as it is; with `remarks` the reason is said at the op. Everything else in the module is left alone,
    and a second run changes nothing.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"tp\"", "Mesh axis whose head shards become token shards">,
    Option<"minTokens", "min-tokens", "int64_t", "1024",
           "Prefill tokens below which a step stays head-sharded">,
    Option<"decodeRows", "decode-rows", "::mlir::shardq::DecodeRows", "::mlir::shardq::DecodeRows::Gather",
           "Where decode rows attend, of an attention over gathered keys", [{::llvm::cl::values(
             clEnumValN(::mlir::shardq::DecodeRows::Gather, "gather", "Over the gathered keys"),
             clEnumValN(::mlir::shardq::DecodeRows::Combine, "combine", "Over own keys, with a merge"))}]>,
    Option<"remarks", "remarks", "bool", "true",
           "Say which attentions were rewritten, and why others were not">
  ];
  let dependentDialects = ["::mlir::shardq::ShardQDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect"];
}

def ShardQDcp : Pass<"shardq-dcp", "::mlir::ModuleOp"> {
  let summary = "Makes attention over a KV cache that is sharded over ranks local";
  let description = [{
    Each `sparse_mla` whose sharding has `kv` over an axis of several ranks becomes one of two forms,
    within that axis' group. The form for decode steps, in which queries travel, and right for others too:
    which keys a row attends was decided when they were chosen, so no causal crop follows.

    ```mlir
    %own, %count = shardq.filter_indices %topk table(%table) rows(%req) over @ranks "dcp" ...
    %all = shardq.gather_query(%q_nope, %q_rope) over @ranks "dcp"
    %partial, %lse = shardq.sparse_mla q(%all) kv(%kv) slots(%own) topk_length(%count) ...
    %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp"
    ```

    The form for prefill and mixed steps, in which keys travel, while the indexer runs; nothing is merged, and
    decode rows attend the gathered keys too, or with `decode-rows=combine` go the way of decode steps meanwhile:

    ```mlir
    %blocks, %inverse, %count = shardq.gather_blocks %table lengths(%seq_lens) over @ranks "dcp" ...
    %handle = shardq.gather_kv_start(%kv) blocks(%blocks, %count) over @ranks "dcp"
    // the indexer
    %slots = shardq.gathered_slots %topk blocks(%inverse, %count) rows(%req) over @ranks "dcp" ...
    %all = shardq.gather_kv_finish %handle
    %out = shardq.sparse_mla q(%q_nope, %q_rope) kv(%all) slots(%slots) ...
    ```

    With `blocks=full` every entry of the table is gathered (`gather_blocks`), so that sizes do not depend on the step.

    `step` says which: `decode`; `gather`, where a step whose keys do not fit the inbox goes the way of decode steps; or `gate`,
    where one without prefill does so too. The last two are both forms under an `scf.if` on a `gather_gate`,
    with the index ops that feed this attention alone. (Where the rows are chunks of requests over ranks that
    KV is divided over too, other rows than the peers' cannot go the other way: in a step whose keys do not fit no request is in
    chunks, as in one without prefill. A table that is made behind the `chunk_split` is made in front of it, where nothing that it
    is made of stands behind. One that cannot be comes too late: keys are then gathered in each step with chunks, with a remark that those
    that do not fit are an error of the runtime.) The gather needs the step's lengths, from the `expand_rows`
    that the op's `rows` or the producers of its slots refer to; with `gate`, an attention without one gets the form
    for decode steps. A sink joins the merge, and no partial output. The two calls of `--shardq-pcp` share one gather,
    unless decode rows are combined.

    Where the op has contiguous shards of the step's tokens (`tokens = contiguous`), rows travel rather than heads, with
    their chosen positions, and each rank gets its rows back:

    ```mlir
    %req_all = shardq.gather_rows %req over @ranks "dcp" {token_shards}
    %topk_all = shardq.gather_rows %topk over @ranks "dcp" {token_shards}
    %own, %count = shardq.filter_indices %topk_all table(%table) rows(%req_all) over @ranks "dcp" ...
    %all = shardq.gather_rows %q_nope, %q_rope over @ranks "dcp" {token_shards}
    %partial, %lse = shardq.sparse_mla q(%all) kv(%kv) slots(%own) topk_length(%count) ...
    %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" {scatter_tokens}
    ```

    All ranks have as many rows, which is an error of the runtime otherwise. In a step in which keys are gathered each
    rank attends its own rows, those of decode requests too.

    With `padded-heads` gathered queries lie in storage of that many heads a row, for kernels that take as many; the attention's operand
    is the part with the group's heads.

    The slots must come from a `convert_indices`, which filter or `gathered_slots` take the place of, once for
    all attentions that share it in one form; `kv` and its table are this rank's own, and a gather needs
    the table to be the same on all members (`gather_blocks`). An attention that cannot be
    rewritten is an error, since it cannot run otherwise. An axis of one rank changes nothing, nor does a
    second run.
  }];
  let options = [
    Option<"step", "step", "::mlir::shardq::DcpStep", "::mlir::shardq::DcpStep::Gate",
           "Steps that the program is for", [{::llvm::cl::values(
             clEnumValN(::mlir::shardq::DcpStep::Decode, "decode", "Queries are gathered, outputs merged"),
             clEnumValN(::mlir::shardq::DcpStep::Gather, "gather", "Keys are gathered, where they fit"),
             clEnumValN(::mlir::shardq::DcpStep::Gate, "gate", "Both, by what the step holds"))}]>,
    Option<"decodeRows", "decode-rows", "::mlir::shardq::DecodeRows", "::mlir::shardq::DecodeRows::Gather",
           "Where decode rows attend in steps in which keys are gathered", [{::llvm::cl::values(
             clEnumValN(::mlir::shardq::DecodeRows::Gather, "gather", "Over the gathered keys"),
             clEnumValN(::mlir::shardq::DecodeRows::Combine, "combine", "Over own keys, with a merge"))}]>,
    Option<"blocks", "blocks", "::mlir::shardq::GatheredBlocks", "::mlir::shardq::GatheredBlocks::Compact",
           "Which blocks are gathered", [{::llvm::cl::values(
             clEnumValN(::mlir::shardq::GatheredBlocks::Compact, "compact", "Those with tokens of the step, each once"),
             clEnumValN(::mlir::shardq::GatheredBlocks::Full, "full", "All that the table names"))}]>,
    Option<"nullBlock", "null-block", "int32_t", "0",
           "Block that stands for none in block tables, and is not gathered; -1: all blocks may hold tokens">,
    Option<"paddedHeads", "padded-heads", "int64_t", "0",
           "Heads that rows of gathered queries have room for; 0: those of the group">,
    Option<"remarks", "remarks", "bool", "true", "Say which attentions were rewritten">
  ];
  let dependentDialects = ["::mlir::shardq::ShardQDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
}

def ShardQPcp : Pass<"shardq-pcp", "::mlir::ModuleOp"> {
  let summary = "Divides the rows of prefill requests over ranks, in chunks";
  let description = [{
    For prefill context parallelism: in a program whose ranks along the axis all hold all rows of the
    step, each `sparse_mla`, with the index ops that feed it, runs on a rank's own rows: decode requests whole, of each
    prefill request a chunk from its beginning and one from its end (`chunk_split`). Its results are gathered.

    ```mlir
    // once per step
    %decodes = shardq.count_decode_rows %query_start
    %mine, %restore = shardq.chunk_split %query_start decodes(%decodes) rows(%rows) over @ranks "pcp"
    %req_mine = shardq.take_rows %req[%mine] {missing = -1 : i32}
    %visible_mine = shardq.take_rows %visible[%mine]
    // per attention
    // indexer, conversion, attention on take_rows of their row operands
    %out = scf.if %has_prefill {
      %all = shardq.gather_rows %out_mine over @ranks "pcp"
      scf.yield (shardq.take_rows %all[%restore])
    } else {
      scf.yield (shardq.take_rows %out_mine[%restore])
    }
    ```

    Decode requests are on every rank, so a step of nothing else needs no exchange: `%has_prefill` is whether tails have
    rows (`count_chunk_rows`), the same on all ranks. With `gate=false` every step gathers.

    Steps of more rows than inboxes hold have no chunks, which `--shardq-slice-steps` sees to, in the pipelines: each rank runs all of their
    rows, as without the pass, and nothing is gathered. Without the gate they are gathered in turns.

    Padded rows have request -1 and visible length 0. With `two-calls` the heads (with the decode requests) and the
    tails run in calls of their own, with the key lengths of `chunk_lengths`: for kernels that take a length for each
    request.

    Where the keys of the attention or of its indexer come from `write_rows`, those are taken to be the step's rows, with
    slot -1 for rows of no request: own rows are taken, gathered and written by `chunk_slots`, in a step without prefill
    written as they were.

    The step's description is the `expand_rows` that the op's `rows` or the producers of its slots refer to. Heads, and
    KV for `--shardq-dcp` behind this pass, may be sharded over other axes. KV may be sharded over an axis that joins this one with others,
    too; keys that do not fit have no chunks then, so the attention is left alone where its block table cannot be made before rows are divided: where
    it comes from what has regions or effects, as a call or a loop, behind the `expand_rows`. (Behind `--shardq-dcp` this pass is right too, but each rank has
    chosen positions of all rows then, and sent queries of all.) An attention that cannot be
    rewritten stays as it is; with `remarks` the reason is said at the op. A mesh without the axis, or with one rank
    along it, changes nothing, nor does a second run.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"pcp\"", "Mesh axis over which requests are divided">,
    Option<"twoCalls", "two-calls", "bool", "false",
           "Attend head and tail chunks in two calls, by key lengths">,
    Option<"gate", "gate", "bool", "true", "Exchange nothing in steps without prefill">,
    Option<"remarks", "remarks", "bool", "true",
           "Say which attentions were rewritten, and why others were not">
  ];
  let dependentDialects = ["::mlir::shardq::ShardQDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}

def ShardQMoveProjections : Pass<"shardq-move-projections", "::mlir::ModuleOp"> {
  let summary = "Moves projections of single heads to the narrow side of exchanges";
  let description = [{
    Behind `--shardq-dcp`, in programs that contain the projections of MLA. A contraction that projects each head by itself
    (`linalg.contract`, or any linalg op that is one) and is all that reads what `combine_lse` returns (but for questions for
    its size) runs on the partial outputs instead, so that narrower rows are merged: merging is linear in them. One that makes
    a source of a `gather_query`, where the attention is all that reads the result, runs behind it:

    ```mlir
    %out = shardq.combine_lse %partial lse(%lse) over @ranks "dcp" : ... -> tensor<?x16x512xbf16>
    %v = linalg.contract ... ins(%out, %w_uv) -> tensor<?x16x128xf32>    // th.c, h.c.v -> th.v
    // becomes
    %narrow = linalg.contract ... ins(%partial, %w_uv) -> tensor<?x64x128xf32>
    %v = shardq.combine_lse %narrow lse(%lse) over @ranks "dcp" : ... -> tensor<?x16x128xf32>
    ```

    An `arith.truncf` behind the contraction moves with it. Rounding differs in the last bits, as that of partial outputs does.
    What stands in front of or behind a gate (`scf.if`) of which one side exchanges is done by each side for itself.

    Both need the weights of all heads of the group. Ranks that keep all heads, or whole rows, have them. Else they must be an
    argument of the function, with `shardq.split` by heads over the ranks of the group: the argument gets all heads and loses
    its split, which whoever calls the program has to know. (A group that is a part of tp takes weights that are split over
    its own axis.) Functions that the module calls itself are left alone. Of projections one behind the other each moves, while rows
    become narrower. `memory` is what the weights of other ranks may take, in bytes, over the module, in program order; a
    projection for which nothing is left stays, as does one that does not make rows narrower. With `remarks` that is said.
  }];
  let options = [
    Option<"memory", "memory", "int64_t", "0", "Bytes that weights of other ranks may take">,
    Option<"remarks", "remarks", "bool", "true", "Say which projections moved, and why others did not">
  ];
  let dependentDialects = ["::mlir::shardq::ShardQDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect"];
}

def ShardQVerifyLayouts : Pass<"shardq-verify-layouts", "::mlir::ModuleOp"> {
  let summary = "Rejects argument layouts that do not fit the argument";
  let description = [{
    A function argument may say how its buffer lies in memory, by `bufferization.buffer_layout`.
    Fails where that is not a strided layout of as many dimensions as the tensor has: nothing
    upstream compares the two, and bufferization and what comes behind it rely on it.
  }];
}

def ShardQVerifyViews : Pass<"shardq-verify-views", "::mlir::ModuleOp"> {
  let summary = "Rejects tables, slots and caches of which the view changes on the way"
                " to the ops that compare it";
  let description = [{
    Ops in which tables, slots and caches meet compare the views (`#shardq.view`) of their operands. A slice or a
    reshape may have a result of another view than its source, and nothing upstream says so. Fails on an operand that is
    compared and comes, through `extract_slice`, `insert_slice`, `collapse_shape`, `expand_shape`, `concat`, `pad`, `reshape`,
    selections, branches and loops, from a tensor of another view:

    ```mlir
    %part = tensor.extract_slice %table[0, 0] [%n, 64] [1, 1]
        : tensor<?x64xi32, #shardq.view<replicated>> to tensor<?x64xi32>  // expected: the view of %table
    ```

    `tensor.cast` may change a view: so a program says that it means to. Constants and empty tensors are of any. The
    pass belongs in front of upstream's canonicalization, which may join such a cast with others. The pipelines begin
    with it.
  }];
}

def ShardQVerifyExchanges : Pass<"shardq-verify-exchanges", "::mlir::ModuleOp"> {
  let summary = "Rejects exchanges that some ranks might not run";
  let description = [{
    All ranks must run the same exchanges in the same order. Fails on an exchange (or
    `push`, `signal`, `wait`, or a call that leads to one) under control flow that depends on the
    rank: on `rank`, `local_rows`, the contents or sizes of exchange results, loads from
    memory written under such control flow, or function arguments with `shardq.split`. Values of unknown ops depend on
    the rank when an operand does.
  }];
}

def ShardQSliceSteps : Pass<"shardq-slice-steps", "::mlir::ModuleOp"> {
  let summary = "Lets steps of more rows than planned exchange queries and outputs in slices";
  let description = [{
    A step of the form for decode steps has as many rows as its caller gives it, and inboxes hold
    `max-tokens`. Each `gather_query` and the attention and `combine_lse` that read it get a second form, as do the ops that
    `--shardq-select-transport` makes of a merge:

    ```mlir
    %more = arith.cmpi sgt, %rows, %c8192 : index
    %out = scf.if %more -> (tensor<?x16x512xbf16>) {
      // scf.for over the rows, max-tokens at a time: the same ops on rows of the slice
    } else {
      // the ops as they were
    }
    ```

    All ranks have the same rows, so all take the same branch and as many turns. A row's result does not
    depend on which slice it is in. A `gather_query`, `gather_rows`, `combine_lse` or `reduce_heads` on its own is sliced by itself;
    of `gather_rows` without `token_shards` inboxes hold `max-tokens + 2*max-requests` rows of each rank, and each turn's go to their
    places among those of their rank. In such a loop nothing acknowledges a gather, so its inbox has two generations. One whose rows
    are known to fit is left alone, as is one whose rows differ between ranks, with a remark: no rank could tell the turns
    of the others.

    Gathers of chunks of requests under the gate of `--shardq-pcp` have no turns. A step of more than `max-tokens` rows, or whose rows
    are more than `max-tokens + 2*max-requests` together with a row more for each request, has no chunks instead: all of its rows
    are taken for those of decode requests, by whatever divides the step, so the gate is closed.

    ```mlir
    %more = arith.cmpi sgt, %rows, %c8192 : index
    %some = arith.minsi %rows, %requests : index
    %padded = arith.addi %rows, %some : index
    %too_many = arith.cmpi sgt, %padded, %c8704 : index
    %not_fit = arith.ori %more, %too_many : i1
    %whole = arith.select %not_fit, %rows, %decodes : index
    %mine, %restore = shardq.chunk_split %query_start decodes(%whole) rows(%rows) over @ranks "pcp"
    ```

    Numbers that are known to fit are not compared. Where something takes the same number for another step, or
    in front of what the comparison needs, the gathers have turns.

    Where ranks have shards of the rows (`gather_rows` with `token_shards`, `combine_lse` with `scatter_tokens`) a slice is
    of each rank's, `max-tokens` of all together: a turn gathers them, with the positions that nothing else reads, and scatters
    them back. What has the rows of all ranks and is not made in the turn is taken from each rank's part of it. A merge that scatters
    rows which were not gathered for it alone takes the rows of a slice from those of each rank. A second run changes nothing.

    An `exchange` and a `gather_kv_start` have no turns, since what is in them depends on more than rows: `split_gate` and `gather_gate`
    keep steps from them that do not fit. Of one that stands under no such gate a remark says that.

    What has another number of rows than the first operand that is sliced is an error of the runtime, as in a step that fits
    (`expect`), and no turn reads beyond its end. What is left alone with more rows than inboxes hold is `SHARDQ_CAPACITY` in
    that step; where types say how many rows the inbox of a gather has, it is an error of `--shardq-plan-workspace`.
  }];
  let options = [
    Option<"maxTokens", "max-tokens", "int64_t", "8192", "Rows of the largest step that inboxes hold">,
    Option<"maxRequests", "max-requests", "int64_t", "256", "Requests of the largest step that inboxes hold">
  ];
  let dependentDialects = ["::mlir::shardq::ShardQDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}

def ShardQSelectTransport : Pass<"shardq-select-transport", "::mlir::ModuleOp"> {
  let summary = "Chooses how each collective travels, and says why";
  let description = [{
    One table, at the top of the pass' file, from what is known when a program is compiled: the mesh, hosts, the heads that
    each rank keeps, types, the rows that inboxes hold, the target and the option. Each collective of level 2 on tensors gets
    a `transport` attribute with the choice and its reason, and a remark that says the same. One that has a choice keeps it:
    by hand, or of an earlier run. The ops that a merge becomes have no remark of their own, and its reason in theirs.
    Pipelines run the pass without remarks where `transport=auto`: what is chosen unasked is in the IR.

    | choice | what it is |
    | --- | --- |
    | `direct` | ranks write into each other's memory; where they turn out not to reach it, the runtime lets NCCL carry all exchanges |
    | `nccl` | NCCL carries the rows, on GPUs, beside others that are direct |
    | `ag_rs` | of a `combine_lse`: `gather_rows` of the LSEs, `weigh_partial`, `reduce_heads` |
    | `ag_ar` | the same and a `gather_query` of the sums, where each rank keeps all heads |

    ```mlir
    // combine_lse %partial lse(%lse), ag_rs
    %lses = shardq.gather_rows %lse over @ranks "dcp"
    %share = shardq.weigh_partial %partial lses(%lses) over @ranks "dcp"
    %out = shardq.reduce_heads %share over @ranks "dcp"
    ```

    A `combine_lse` that keeps all heads and is `direct` or `nccl` becomes one of own heads and a `gather_query` of its result, with
    heads of nobody where the ranks could not share them evenly.
    One that scatters tokens or has a sink is not made of other ops: shares are summed by heads, and each would need the
    sinks of all.
    Every form follows the definition of `combine_lse`; the sums of `ag_rs` and `ag_ar` are of rounded weights, so the last bits
    differ. `transport=ag_rs` and `transport=ag_ar` choose for `combine_lse` alone, others are then chosen as by `auto`.
    Of a program with merges of both kinds each that cannot take the form that was asked for takes the other one, or what `auto`
    would choose, and the reason says so. Forcing what cannot work anywhere is an error that says why.

    Element types, alignment and capacity decide nothing, since every transport takes any rows that ops here have and all share the
    inboxes, but the reason of what the table chooses says what they come to:

    | what is known | what it means |
    | --- | --- |
    | each part of a row, or of a head, is a multiple of 16 bytes | on GPUs a direct push moves 16 bytes at a time, where buffers are aligned to them |
    | one is not | it moves single elements |
    | there are more rows than `max-tokens`, of all ranks together where they have shards | `--shardq-slice-steps` has to take them in turns; what it leaves alone is an error, of `--shardq-plan-workspace` where the inbox has as many rows by its types, else `SHARDQ_CAPACITY` |
  }];
  let options = [
    Option<"transport", "transport", "::mlir::shardq::TransportChoice", "::mlir::shardq::TransportChoice::Auto",
           "How collectives travel", [{::llvm::cl::values(
             clEnumValN(::mlir::shardq::TransportChoice::Auto, "auto", "As the table says"),
             clEnumValN(::mlir::shardq::TransportChoice::Direct, "direct", "Into the memory of peers"),
             clEnumValN(::mlir::shardq::TransportChoice::Nccl, "nccl", "NCCL carries them"),
             clEnumValN(::mlir::shardq::TransportChoice::AgRs, "ag_rs", "Merges by all-gather and reduce-scatter"),
             clEnumValN(::mlir::shardq::TransportChoice::AgAr, "ag_ar", "Merges by all-gather and all-reduce"))}]>,
    Option<"target", "target", "::mlir::shardq::RankTarget", "::mlir::shardq::RankTarget::Cuda",
           "What ranks are", [{::llvm::cl::values(
             clEnumValN(::mlir::shardq::RankTarget::Cpu, "cpu", "Processes of a host"),
             clEnumValN(::mlir::shardq::RankTarget::Cuda, "cuda", "GPUs"))}]>,
    Option<"hostRanks", "host-ranks", "int64_t", "0", "Consecutive ranks of the mesh that share a host; 0: all">,
    Option<"maxTokens", "max-tokens", "int64_t", "8192", "Rows of the largest step that inboxes hold">,
    Option<"remarks", "remarks", "bool", "true", "Say what was chosen, and why">
  ];
  let dependentDialects = ["::mlir::shardq::ShardQDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect"];
}

def ShardQPlanWorkspace : Pass<"shardq-plan-workspace", "::mlir::ModuleOp"> {
  let summary = "Plans the symmetric workspace; exchanges become push, signal and wait";
  let description = [{
    Runs on buffers. Each `exchange` becomes `workspace`, `push`, `signal` and `wait`, then fills in
    `after` rows and graph padding; a `gather_query` or `gather_rows` the same, a `combine_lse` with a `merge_lse` that reads
    the inbox, a `reduce_heads` with a `sum_partials`; a `gather_kv_start` becomes the first three, its finish the `wait`.
    Exchanges of one direction, inbox shape and axis share a channel. The module's `plan` says what there is: sizes for
    `max-tokens` rows and `max-requests` requests (q inbox `ceil(max_tokens/W) + 2*max_requests` rows, out inbox and
    gathered queries `max_tokens` rows, partial outputs as many from each rank, as in a step of the largest size, of
    scattered tokens as many from all together; gathered rows `max_tokens + 2*max_requests` of each rank, `max_tokens` of
    all together where they are token shards; gathered KV `ceil(max_kv_tokens/(N*B)) + max_requests * ceil(I/B)` blocks of
    each rank, and no more than all have), `slots` micro-batch slots, a hash.
    Exchanges that ask for NCCL (`transport`) have channels of their own, which say so. `split_gate` and
    `gather_gate` ops get the same capacities, so larger steps take the other branch. An inbox of an `exchange` or a gather
    that has more rows by its types is an error here; where they are open, and of merges, it is `SHARDQ_CAPACITY` in the step.

    A channel has one generation where on every path another exchange of the same group
    lies between two of its own, which acknowledges the buffer; two otherwise. An inbox
    that is still needed at the next exchange, or leaves its block, is copied out first.
  }];
  let options = [
    Option<"maxTokens", "max-tokens", "int64_t", "8192", "Rows of the largest step">,
    Option<"maxRequests", "max-requests", "int64_t", "256", "Requests of the largest step">,
    Option<"maxKvTokens", "max-kv-tokens", "int64_t", "65536",
           "Context plus new tokens of the largest step whose KV is gathered">,
    Option<"slots", "slots", "int64_t", "1", "Micro-batches in flight">
  ];
  let dependentDialects = ["::mlir::shardq::ShardQDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::arith::ArithDialect"];
}

def ShardQVerifyProtocol : Pass<"shardq-verify-protocol", "::mlir::ModuleOp"> {
  let summary = "Proves that no exchange overwrites unread rows or waits for ever";
  let description = [{
    Runs on `push`, `signal`, `wait`. Fails unless

    - each push is followed in its block by its signal and its wait, with no other
      exchange between: one exchange is in flight per channel and slot. Between the signal and the wait of a
      `gather_rows` with blocks others may stand, but no other such gather
    - nothing reads an inbox before its wait, or at or behind the next signal
    - a channel of one generation is acknowledged: on every path from one of its waits to
      its next push, through calls of this module's functions in any order, another
      channel of the same group signals and waits
    - a push asks for NCCL where its channel does, and nowhere else
    - no push, signal or wait depends on the rank (`--shardq-verify-exchanges`)
  }];
}

#endif // SHARDQ_TRANSFORMS_PASSES
