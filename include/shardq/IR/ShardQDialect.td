//===- ShardQDialect.td - The ShardQ dialect ---------------*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQDIALECT
#define SHARDQ_IR_SHARDQDIALECT

include "mlir/IR/OpBase.td"

def ShardQ_Dialect : Dialect {
  let name = "shardq";
  let cppNamespace = "::mlir::shardq";
  let summary = "Sparse MLA attention, how it is sharded, and the exchanges between shardings";
  let description = [{
    A module is the program of **one rank** (local SPMD): tensor shapes are per-rank
    shapes and attributes say how they divide the whole. Every rank runs the same
    module.

    | level | ops | who makes it |
    | --- | --- | --- |
    | 1 model | `mesh`, `expand_rows`, `indexer`, `topk`, `convert_indices`, `sparse_mla`, `tap` | user, importers |
    | 2 distributed | level 1 on token shards, `count_decode_rows`, `zigzag_split`, `split_gate`, `local_rows`, `take_rows`, `exchange` | `--shard-q-tokens` |
    | 2 distributed | level 1 on own keys, `filter_indices`, `gather_query`, `combine_lse` | `--shardq-dcp` |
    | 2 distributed | `weigh_partial`, `reduce_heads`: what a merge can be made of | `--shardq-select-transport` |
    | 2 distributed | level 1 on gathered keys, `gather_blocks`, `gather_gate`, `gather_kv_start`, `gather_kv_finish`, `gathered_slots` | `--shardq-dcp` |
    | 2 distributed | level 1 on shards of the tokens in rank order, `shard_lengths`, `gather_rows` | `--shardq-dcp` |
    | 2 distributed | level 1 on chunks of requests, `count_chunk_rows`, `chunk_split`, `chunk_lengths`, `chunk_slots`, `gather_rows` | `--shardq-pcp` |
    | 2 distributed | `expect`: rows of lists and of slices that must be as many as the step's | `--shard-q-tokens`, `--shardq-pcp`, `--shardq-slice-steps` |
    | 1 model | `replicated_table`, `token_slots`, `write_rows`, `pack_rows`, `unpack_rows`, `local_lengths`, `gathered_table`, `draft_lengths`: tables, slots and rows of caches, lengths of own keys and of draft steps | user, importers |
    | 3 buffers | the same ops on memrefs, `plan`, `workspace`, `push`, `signal`, `wait`, `merge_lse`, `sum_partials`, `peer_view`, `rank` | bufferization and planning |
    | 4 target | `device_context`, `is_carried`, `transfer`, `aside`, `join_aside`, `expect`, `beyond_table`, `no_place`, `beyond_cache`, `check_starts` | conversions |

    **Rows.** A *row* is one query token of the step. Ops that work on rows take
    every per-token input with the row as dimension 0, and no row looks at another,
    so token sharding is `take_rows` on each of them and nothing else.

    **Steps.** A step has `R` requests. `query_start` (`R + 1` values, first 0)
    gives the first row of each; `seq_lens` (`R` values) gives context plus new
    tokens. Rows from `query_start[R]` on are graph padding: request -1, visible
    length 0, and every result of theirs is -1 or 0. The leading run of requests
    with at most `1 + speculative_tokens` query tokens are *decodes*; all requests
    from the first longer one on are *prefill*.

    **Two forms.** Most ops exist on tensors (results, no `outs`) and on buffers
    (`outs`, no results) with the same meaning.

    **Effects.** Ops on tensors are free of effects, except those that talk to
    other ranks: `exchange`, `gather_query`, `combine_lse`, `reduce_heads`, `gather_rows`, `gather_kv_start`,
    `gather_kv_finish`, `push`, `signal` and `wait` write the peer-memory resource, so that neither CSE nor DCE nor
    speculation drops or moves one: a rank that skipped one would hang its peers. Besides, `expect` and `tap`
    write what the caller sees, an error and an observed value, and are not dropped either.

    Version log: 1 (0.1): levels 1 to 3 for token sharding over one axis; KV caches that
    are sharded over ranks; requests in chunks.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let hasOperationAttrVerify = 1;
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect",
    "::mlir::memref::MemRefDialect"
  ];
}

#endif // SHARDQ_IR_SHARDQDIALECT
