"""The program of the integration tests: attention with an indexer, 24 heads in all."""

import numpy as np
from harness import split, tensor

HEADS, DIMS, VALUE = 24, (32, 8), 32
INDEX_HEADS, INDEX_DIM, TOPK, BLOCK, STRIDE = 4, 16, 8, 4, 7
SCALE = 0.2


def attention(ranks, *, layers=1, element="bf16", lse=None, sink=False, speculative=0):
    """Arguments: start, lens, rows, table, itable; iq, iw, ik, q0, q1, kv, sink with the layer's number."""
    heads, local = HEADS // ranks, split(1)
    args = [("start", "tensor<?xi32>"), ("lens", "tensor<?xi32>"), ("rows", "index"),
            ("table", "tensor<?x?xi32>"), ("itable", "tensor<?x?xi32>")]
    body, names, types = [], [], []
    slots = tensor("i32", "?", TOPK)
    for n in range(layers):
        iq, iw, ik = (tensor(element, "?", INDEX_HEADS, INDEX_DIM), tensor("f32", "?", INDEX_HEADS),
                      tensor(element, "?", INDEX_DIM))
        q0, q1, kv = (tensor(element, "?", heads, DIMS[0]), tensor(element, "?", heads, DIMS[1]),
                      tensor(element, "?", sum(DIMS)))
        args += [(f"iq_{n}", iq), (f"iw_{n}", iw), (f"ik_{n}", ik), (f"q0_{n}", f"{q0} {local}"),
                 (f"q1_{n}", f"{q1} {local}"), (f"kv_{n}", kv)]
        operands, operand_types = "", ""
        if sink:
            args.append((f"sink_{n}", tensor("f32", HEADS)))
            operands, operand_types = f" sink(%sink_{n})", f", {tensor('f32', HEADS)}"
        results, result_types = f"%out_{n}", [tensor(element, "?", heads, VALUE)]
        attrs = f'scale = {SCALE} : f32, sharding = #shardq.sharding<@ranks, heads = ["tp"]>'
        if lse:
            results += f", %lse_{n}"
            result_types.append(tensor("f32", "?", heads))
            attrs += f", lse = #shardq.lse<base = {lse}>"
        body.append(f"""
  %topk_{n} = shardq.indexer q(%iq_{n}) weights(%iw_{n}) keys(%ik_{n}) table(%itable)
      rows(%req, %visible) {{block_size = {BLOCK} : i64}}
      : ({iq}, {iw}, {ik}, tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> {slots}
  %slots_{n} = shardq.convert_indices %topk_{n} table(%table) rows(%req)
      {{block_size = {BLOCK} : i64, block_stride_rows = {STRIDE} : i64}}
      : ({slots}, tensor<?x?xi32>, tensor<?xi32>) -> {slots}
  {results} = shardq.sparse_mla q(%q0_{n}, %q1_{n}) kv(%kv_{n}) slots(%slots_{n}) rows(%req){operands}
      {{{attrs}}}
      : ({q0}, {q1}, {kv}, {slots}, tensor<?xi32>{operand_types}) -> ({", ".join(result_types)})""")
        names.append(results)
        types += result_types
    return f"""
shardq.mesh @ranks ["tp" = {ranks}]
func.func @attention({", ".join(f"%{n}: {t}" for n, t in args)})
    -> ({", ".join(f"{t} {local}" for t in types)}) {{
  %req, %visible = shardq.expand_rows %start, %lens to %rows {{speculative_tokens = {speculative} : i64}}
      : (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)
{"".join(body)}
  return {", ".join(names)} : {", ".join(types)}
}}
"""


def step(query_lens, context_lens, *, padding=0, speculative=None):
    result = {"query_lens": query_lens, "context_lens": context_lens, "block_size": BLOCK}
    if padding:
        result["padding_rows"] = padding
    if speculative is not None:
        result["speculative_tokens"] = speculative
    return result
