"""Steps that do not add up are errors of the call, with the numbers: `steps.py CASE...`.

What is wrong is made by the program from lists that shardq-run does not look into.
"""

import itertools

import numpy as np
from harness import expect, main, run

RANKS = (1, 2, 3, 4, 8)
VECTOR = "tensor<?xi32>"


def program(ranks, arguments, body, results):
    """A module whose results are split by rank; `%NAME` of each list is made of its entries."""
    names = ", ".join(n for n, _ in results)
    types = ", ".join(t for _, t in results)
    split = '{shardq.split = #shardq.split<@ranks, 0 over "tp">}'
    return f"""
shardq.mesh @ranks ["tp" = {ranks}]
func.func @step({arguments}) -> ({", ".join(f"{t} {split}" for _, t in results)}) {{
{body}
  return {names} : {types}
}}
"""


def made(name):
    """A list that nobody knows the meaning of: the entries of a column."""
    column = "tensor<?x1xi32>"
    return (f"%{name}_of: {column}",
            f"  %{name} = tensor.collapse_shape %{name}_of [[0, 1]] : {column} into {VECTOR}\n")


def entries(name, values):
    return {f"{name}_of": np.array(values, "<i4").reshape(-1, 1)}


def fails(text, inputs, *expected, options=()):
    found = run(text, inputs, *options, status=1)
    for part in expected:
        expect(part in found, f"no '{part}' in:\n{found}")


# Starts.


EXPAND = ("", "  %a, %b = shardq.expand_rows %s, %l to %n : (tensor<?xi32>, tensor<?xi32>, index) "
          "-> (tensor<?xi32>, tensor<?xi32>)")
ZIGZAG = ("%d: index, ", '  %a, %b = shardq.zigzag_split %s decodes(%d) rows(%n) over @ranks "tp" '
          ": (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<{more}xi32>)")
CHUNKS = ("%d: index, ", '  %a, %b = shardq.chunk_split %s decodes(%d) rows(%n) over @ranks "tp" '
          ": (tensor<?xi32>, index, index) -> (tensor<?xi32>, tensor<?xi32>)")
SHARDS = ("", '  %a, %b = shardq.shard_lengths %s, %l rows(%n) over @ranks "tp" '
          ": (tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)")


def of_starts(op, ranks, starts, rows, decodes):
    """A program of the op, and its inputs."""
    more, body = op
    arguments, takes = made("s")
    hasLengths, hasDecodes = "%l" in body, "%d" in body
    if hasLengths:
        of_lengths, take = made("l")
        arguments, takes = f"{arguments}, {of_lengths}", takes + take
    second = f"tensor<{ranks + 1}xi32>" if op is ZIGZAG else VECTOR
    text = program(ranks, f"{arguments}, {more}%n: index", takes + body.replace("{more}", str(ranks + 1)),
                   [("%a", VECTOR), ("%b", second)])
    inputs = dict(entries("s", starts), n=np.array(rows, "<i8"))
    if hasLengths:
        inputs.update(entries("l", [50] * max(len(starts) - 1, 0)))
    if hasDecodes:
        inputs["d"] = np.array(decodes, "<i8")
    return text, inputs


def starts_wrong(op, multiplied=False):
    ranks_of = itertools.cycle(RANKS)
    rows = 12
    for ranks, (starts, decodes, expected) in zip(ranks_of, (
            ([1, 4, 9], 0, "the step's first query start is 1, expected 0"),
            ([-2, 4, 9], 0, "the step's first query start is -2, expected 0"),
            ([0, 7, 4, 9], 0, "query start 2 of the step is 4, below the one in front of it, 7"),
            ([0, 7, -4], 0, "query start 2 of the step is -4, below the one in front of it, 7"),
            ([0, 7, None], 0, "query start 2 of the step is {more}, beyond its {all} rows"),
            ([0, 3, 9], 13, "the step has 13 decode rows, expected 0 to its {all} rows"),
            ([0, 3, 9], -1, "the step has -1 decode rows, expected 0 to its {all} rows"),
            ([0, 4, 10], 2, "the step has 2 decode rows, which end within request 0, and the next one begins at row 4"),
            ([0, 1, 1, 9], 8, "the step has 8 decode rows, which end within request 2, and the next one begins at row 9"))):
        if decodes and "%d" not in op[1]:
            continue
        all_rows = rows * ranks if multiplied else rows
        starts = [all_rows + 1 if s is None else s for s in starts]
        fails(*of_starts(op, ranks, starts, rows, decodes),
              expected.format(more=all_rows + 1, all=all_rows), "rank ")
    # What graphs are padded with, rows of no request, no requests.
    for ranks, (starts, decodes) in zip(ranks_of, (([0, 3, 9, 9, 9], 3), ([0, 0, 0], 0), ([0, 12], 12), ([0, 9], 10), ([0], 0))):
        run(*of_starts(op, ranks, starts, rows, decodes))


def starts_expand():
    starts_wrong(EXPAND)


def starts_zigzag():
    starts_wrong(ZIGZAG)


def starts_chunks():
    starts_wrong(CHUNKS)


def starts_shards():
    starts_wrong(SHARDS, multiplied=True)


# Sizes.


SIZES = {
    "convert_indices": ("%x: tensor<?x4xi32>, %table: tensor<?x?xi32>", "%i",
                        "shardq.convert_indices %x table(%table) rows(%i) {block_size = 4 : i64} "
                        ": (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>",
                        "tensor<?x4xi32>", "rows of 'req'"),
    "filter_indices": ("%x: tensor<?x4xi32>, %table: tensor<?x?xi32>", "%i",
                       "shardq.filter_indices %x table(%table) rows(%i) over @ranks \"tp\" "
                       "{block_size = 4 : i64, interleave = 2 : i64} "
                       ": (tensor<?x4xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x4xi32>",
                       "tensor<?x4xi32>", "rows of 'req'"),
    "token_slots": ("%x: tensor<?xi32>, %table: tensor<?x?xi32>", "%i",
                    "shardq.token_slots table(%table) rows(%x, %i) {block_size = 4 : i64} "
                    ": (tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?xi64>",
                    "tensor<?xi64>", "rows of 'visible'"),
    "write_rows": ("%x: tensor<?x3xf32>, %cache: tensor<?x3xf32>", "%i",
                   "shardq.write_rows %x at(%i) into(%cache) "
                   ": (tensor<?x3xf32>, tensor<?xi32>, tensor<?x3xf32>) -> tensor<?x3xf32>",
                   "tensor<?x3xf32>", "rows of 'slots'"),
    "sparse_mla": ("%x: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %slots: tensor<?x3xi32>", "%i",
                   "shardq.sparse_mla q(%x) kv(%kv) slots(%slots) topk_length(%i) {scale = 0.5 : f32} "
                   ": (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x3xi32>, tensor<?xi32>) -> tensor<?x2x4xf32>",
                   "tensor<?x2x4xf32>", "rows of 'topk_length'"),
}


def of_sizes(name, ranks, rows, others):
    arguments, _, op, result, what = SIZES[name]
    of, take = made("i")
    text = program(ranks, f"{arguments}, {of}", f"{take}  %r = {op}", [("%r", result)])
    inputs = dict(x={"write_rows": np.ones((rows, 3), "<f4"), "sparse_mla": np.ones((rows, 2, 4), "<f4"),
                     "token_slots": np.zeros(rows, "<i4")}.get(name, np.arange(4 * rows, dtype="<i4").reshape(rows, 4)))
    inputs.update(entries("i", [1] * others if name in ("token_slots", "sparse_mla") else
                          list(range(others)) if name == "write_rows" else [0] * others))
    if "%table" in arguments:
        inputs["table"] = np.arange(1, 33, dtype="<i4").reshape(1, 32)
    if "%cache" in arguments:
        inputs["cache"] = np.zeros((40, 3), "<f4")
    if "%kv" in arguments:
        inputs["kv"] = np.ones((9, 4), "<f4")
        inputs["slots"] = np.zeros((rows, 3), "<i4")
    return text, inputs, what


def sizes():
    """Lists of a step that differ in rows: nothing is read or written beyond either."""
    ranks_of = itertools.cycle(RANKS)
    for name in SIZES:
        for rows, others in ((5, 3), (3, 5), (0, 2), (4, 0)):
            text, inputs, what = of_sizes(name, next(ranks_of), rows, others)
            fails(text, inputs, f"sizes disagree, {others} where {rows} is expected", f"{what} of shardq.{name}")
        for ranks in RANKS:
            text, inputs, _ = of_sizes(name, ranks, 4, 4)
            run(text, inputs)


# Lists of which passes take rows.


def table_of(name, width, element="i32"):
    """A list of so many columns, which nobody knows the meaning of."""
    of = f"tensor<?x{width}x1x{element}>"
    return (f"%{name}_of: {of}",
            f"  %{name} = tensor.collapse_shape %{name}_of [[0], [1, 2]] : {of} into tensor<?x{width}x{element}>\n")


def of_lists(ranks, rows, starts, slots, lengths, source=None, at=None, sharding=""):
    """An attention whose lists have other rows than the step, and perhaps a writer of its keys."""
    (s, take_s), (n, take_n) = table_of("slots", 3), made("n")
    arguments = f"{s}, {n}, %q: tensor<?x2x4xf32>, %kv: tensor<?x4xf32>, %start: {VECTOR}, %lens: {VECTOR}, %rows: index"
    body = (f"{take_s}{take_n}  %req, %visible = shardq.expand_rows %start, %lens to %rows "
            f": ({VECTOR}, {VECTOR}, index) -> ({VECTOR}, {VECTOR})\n")
    inputs = dict(entries("n", [2] * lengths), slots_of=np.zeros((slots, 3, 1), "<i4"), q=np.ones((rows, 2, 4), "<f4"),
                  kv=np.ones((9, 4), "<f4"), start=np.array(starts, "<i4"), lens=np.diff(starts).astype("<i4"),
                  rows=np.array(rows, "<i8"))
    keys = "%kv"
    if source is not None:
        (w, take_w), (a, take_a) = table_of("new", 4, "f32"), made("at")
        arguments += f", {w}, {a}"
        body += (f"{take_w}{take_a}  %all = shardq.write_rows %new at(%at) into(%kv) "
                 f": (tensor<?x4xf32>, {VECTOR}, tensor<?x4xf32>) -> tensor<?x4xf32>\n")
        inputs.update(entries("at", range(at)), new_of=np.ones((source, 4, 1), "<f4"))
        keys = "%all"
    body += (f"  %r = shardq.sparse_mla q(%q) kv({keys}) slots(%slots) rows(%req) topk_length(%n) {{scale = 0.5 : f32{sharding}}} "
             f": (tensor<?x2x4xf32>, tensor<?x4xf32>, tensor<?x3xi32>, {VECTOR}, {VECTOR}) -> tensor<?x2x4xf32>")
    return program(ranks, arguments, body, [("%r", "tensor<?x2x4xf32>")]), inputs


def lists_taken(ranks, passes, sharding=""):
    options = [f"--pipeline={passes}", "--max-tokens=64"]
    starts = [0, 1, 9]
    for rows, slots, lengths, what, found in ((9, 8, 9, "slots", 8), (9, 9, 3, "topk_length", 3), (9, 9, 11, "topk_length", 11),
                                              (9, 0, 9, "slots", 0)):
        fails(*of_lists(ranks, rows, starts, slots, lengths, sharding=sharding),
              *(f"rank {rank}: sizes disagree, {found} where {rows} is expected: rows of '{what}' of shardq.sparse_mla"
                for rank in range(ranks)), options=options)
    # Padding of graphs, decode requests alone, one row, none.
    for rows, starts in ((12, [0, 1, 9]), (4, [0, 1, 2, 2, 3]), (1, [0, 1]), (3, [0, 3]), (5, [0]), (0, [0, 0]), (0, [0])):
        run(*of_lists(ranks, rows, starts, rows, rows, sharding=sharding), *options)


def lists_chunks():
    """Lists shorter, or longer, than the step whose requests are in chunks: not padding."""
    for ranks in RANKS[1:]:
        lists_taken(ranks, "shardq-pcp{axis=tp remarks=false}")
    lists_taken(2, "shardq-pcp{axis=tp two-calls=true remarks=false}")
    options = ["--pipeline=shardq-pcp{axis=tp remarks=false}", "--max-tokens=64"]
    for ranks in (2, 3):
        for source, at, what, found in ((7, 8, "source", 7), (8, 6, "slots", 6)):
            fails(*of_lists(ranks, 8, [0, 1, 8], 8, 8, source, at),
                  f"sizes disagree, {found} where 8 is expected: rows of '{what}' of shardq.write_rows", options=options)
        run(*of_lists(ranks, 8, [0, 1, 7], 8, 8, 8, 8), *options)


def lists_tokens():
    """The same of steps whose rows are sharded, whichever branch they take."""
    for ranks in RANKS[1:]:
        for tokens in (1, 1000):
            lists_taken(ranks, f"shard-q-tokens{{min-tokens={tokens} remarks=false}}",
                        ', sharding = #shardq.sharding<@ranks, heads = ["tp"]>')


# Parts that travel together.


def heads_of(name, width, heads=2):
    """Rows of heads, which nobody knows to be those of another list."""
    of, rows = f"tensor<?x{heads * width}xf32>", f"tensor<?x{heads}x{width}xf32>"
    return (f"%{name}_of: {of}",
            f"  %{name}_rows = tensor.dim %{name}_of, %c0 : {of}\n"
            f"  %{name} = tensor.expand_shape %{name}_of [[0], [1, 2]] output_shape [%{name}_rows, {heads}, {width}] "
            f": {of} into {rows}\n")


def lses_of(name, heads):
    of = f"tensor<?x{heads}x1xf32>"
    return (f"%{name}_of: {of}",
            f"  %{name} = tensor.collapse_shape %{name}_of [[0], [1, 2]] : {of} into tensor<?x{heads}xf32>\n")


def parts_fail(ranks, arguments, body, result, inputs, *expected, most=64):
    text = program(ranks, arguments, "  %c0 = arith.constant 0 : index\n" + body, [("%r", result)])
    inputs = {name: np.ones(shape, "<f4") if isinstance(shape, tuple) else shape for name, shape in inputs.items()}
    options = [f"--max-tokens={most}", "--max-requests=1"]
    if expected:
        fails(text, inputs, *expected, options=options)
    else:
        run(text, inputs, *options)


def parts():
    """Sources of one push, and lists over requests, that differ."""
    for ranks, rows, others in ((1, 5, 3), (2, 3, 5), (3, 4, 0), (4, 4, 4)):
        def disagree(what, found=others, expected=rows):
            return [] if rows == others else [f"sizes disagree, {found} where {expected} is expected", what]

        all_heads = f"tensor<?x{2 * ranks}x6xf32>"
        (a, make_a), (b, make_b) = heads_of("a", 4), heads_of("b", 2)
        parts_fail(ranks, f"{a}, {b}", make_a + make_b + f"""  %r = shardq.gather_query(%a, %b) over @ranks "tp"
      : (tensor<?x2x4xf32>, tensor<?x2x2xf32>) -> {all_heads}""", all_heads,
                   dict(a_of=(rows, 8), b_of=(others, 4)), *disagree("rows of source 1 of gather_heads"))
        parts_fail(ranks, f"{a}, {b}", make_a + make_b + """  %r = shardq.gather_rows %a, %b over @ranks "tp"
      : (tensor<?x2x4xf32>, tensor<?x2x2xf32>) -> tensor<?x2x6xf32>""", "tensor<?x2x6xf32>",
                   dict(a_of=(rows, 8), b_of=(others, 4)), *disagree("rows of source 1 of gather_rows"))
        heads, own = 2 * ranks, "tensor<?x2x4xf32>"
        (p, make_p), (l, make_l) = heads_of("p", 4, heads), lses_of("l", heads)
        parts_fail(ranks, f"{p}, {l}", make_p + make_l + f"""  %r = shardq.combine_lse %p lse(%l) over @ranks "tp"
      : (tensor<?x{heads}x4xf32>, tensor<?x{heads}xf32>) -> {own}""", own,
                   dict(p_of=(rows, heads * 4), l_of=(others, heads, 1)), *disagree("rows of source 1 of scatter_heads"))
        (p, make_p), (l, make_l) = heads_of("p", 4), lses_of("l", 2)
        parts_fail(ranks, f"{p}, {l}", make_p + make_l + f"""  %r = shardq.weigh_partial %p lses(%l) over @ranks "tp"
      : (tensor<?x2x4xf32>, tensor<?x2xf32>) -> {own}""", own,
                   dict(p_of=(rows, 8), l_of=(others * ranks, 2, 1)),
                   *disagree("rows of 'lses' of shardq.weigh_partial", others * ranks, rows * ranks))


def parts_slices():
    """Parts that differ, in steps of more rows than inboxes hold: said before rows are sliced, and not read beyond."""
    for ranks, rows, others in ((1, 9, 3), (2, 9, 14), (3, 12, 0), (4, 8, 8), (8, 11, 10), (2, 4099, 5)):
        def disagree(what, found=others, expected=rows):
            return [] if rows == others else [f"sizes disagree, {found} where {expected} is expected", what]

        (a, make_a), (b, make_b) = heads_of("a", 4), heads_of("b", 2)
        inputs = dict(a_of=(rows, 8), b_of=(others, 4))
        all_heads = f"tensor<?x{2 * ranks}x6xf32>"
        parts_fail(ranks, f"{a}, {b}", make_a + make_b + f"""  %r = shardq.gather_query(%a, %b) over @ranks "tp"
      : (tensor<?x2x4xf32>, tensor<?x2x2xf32>) -> {all_heads}""", all_heads, inputs,
                   *disagree("rows of source 1 of shardq.gather_query"), most=5)
        for shards in ("", " {token_shards}"):
            parts_fail(ranks, f"{a}, {b}", make_a + make_b + f"""  %r = shardq.gather_rows %a, %b over @ranks "tp"{shards}
      : (tensor<?x2x4xf32>, tensor<?x2x2xf32>) -> tensor<?x2x6xf32>""", "tensor<?x2x6xf32>", inputs,
                       *disagree("rows of source 1 of shardq.gather_rows"), most=5)
        heads, own = 2 * ranks, "tensor<?x2x4xf32>"
        (p, make_p), (l, make_l) = heads_of("p", 4, heads), lses_of("l", heads)
        parts_fail(ranks, f"{p}, {l}", make_p + make_l + f"""  %r = shardq.combine_lse %p lse(%l) over @ranks "tp"
      : (tensor<?x{heads}x4xf32>, tensor<?x{heads}xf32>) -> {own}""", own,
                   dict(p_of=(rows, heads * 4), l_of=(others, heads, 1)), *disagree("rows of 'lse' of shardq.combine_lse"), most=5)
        # Of rows that no argument has.
        parts_fail(ranks, f"{p}, {l}", make_p + make_l + f"""  %half = tensor.concat dim(0) %l, %l
      : (tensor<?x{heads}xf32>, tensor<?x{heads}xf32>) -> tensor<?x{heads}xf32>
  %r = shardq.combine_lse %p lse(%half) over @ranks "tp" : (tensor<?x{heads}x4xf32>, tensor<?x{heads}xf32>) -> {own}""", own,
                   dict(p_of=(rows, heads * 4), l_of=(others, heads, 1)), f"sizes disagree, {2 * others} where {rows} is expected",
                   "rows of 'lse' of shardq.combine_lse", most=5)
        # A list beside queries that are gathered.
        (t, make_t), k = made("t"), "tensor<?x4xf32>"
        parts_fail(ranks, f"{a}, {t}, %k: {k}", make_a + make_t + f"""  %t_rows = tensor.dim %t, %c0 : {VECTOR}
  %slots = tensor.expand_shape %t [[0, 1]] output_shape [%t_rows, 1] : {VECTOR} into tensor<?x1xi32>
  %all = shardq.gather_query(%a) over @ranks "tp" : (tensor<?x2x4xf32>) -> tensor<?x{heads}x4xf32>
  %p, %l = shardq.sparse_mla q(%all) kv(%k) slots(%slots) {{scale = 1.0 : f32}}
      : (tensor<?x{heads}x4xf32>, {k}, tensor<?x1xi32>) -> (tensor<?x{heads}x4xf32>, tensor<?x{heads}xf32>)
  %r = shardq.combine_lse %p lse(%l) over @ranks "tp" : (tensor<?x{heads}x4xf32>, tensor<?x{heads}xf32>) -> {own}""", own,
                   dict(a_of=(rows, 8), k=(6, 4), t_of=np.zeros((others, 1), "<i4")),
                   *disagree("rows of 'slots' of shardq.sparse_mla"), most=5)


def of_promised(ranks, width, most):
    """Exchanges with a type that says how many rows come out, and sources whose types do not."""
    heads = 2 * ranks
    (a, make_a), (p, make_p), (l, make_l) = heads_of("a", 4), heads_of("p", 4, heads), lses_of("l", heads)
    part, lse = f"tensor<?x{heads}x4xf32>", f"tensor<?x{heads}xf32>"
    merge = f"{make_p}{make_l}  %r, %m = shardq.combine_lse %p lse(%l) over @ranks \"tp\""
    pushed = most > width
    gathered = f"rows of source 0 of {'gather_heads of shardq.push' if pushed else 'shardq.gather_query'}"
    merged = "rows of 'out' of shardq.merge_lse" if pushed else "rows of 'partial' of shardq.combine_lse"
    summed = "rows of 'out' of shardq.sum_partials" if pushed else "rows of 'source' of shardq.reduce_heads"
    yield "gather", a, make_a, f"""  %r = shardq.gather_query(%a) over @ranks "tp"
      : (tensor<?x2x4xf32>) -> tensor<{width}x{heads}x4xf32>""", f"tensor<{width}x{heads}x4xf32>", gathered
    yield "merge", f"{p}, {l}", "", merge + f""" : ({part}, {lse})
      -> (tensor<{width}x2x4xf32>, tensor<{width}x2xf32>)""", f"tensor<{width}x2x4xf32>", merged
    yield "merge", f"{p}, {l}", "", merge + f""" : ({part}, {lse})
      -> (tensor<{width}x2x4xf32>, tensor<?x2xf32>)""", f"tensor<{width}x2x4xf32>", merged
    yield "merge", f"{p}, {l}", make_p + make_l, f"""  %m, %r = shardq.combine_lse %p lse(%l) over @ranks "tp" : ({part}, {lse})
      -> (tensor<?x2x4xf32>, tensor<{width}x2xf32>)""", f"tensor<{width}x2xf32>", \
        "rows of 'merged' of shardq.merge_lse" if pushed else merged
    yield "scatter", f"{p}, {l}", "", merge + f""" {{scatter_tokens}} : ({part}, {lse})
      -> (tensor<{width}x{heads}x4xf32>, tensor<?x{heads}xf32>)""", f"tensor<{width}x{heads}x4xf32>", merged
    yield "sum", p, make_p, f"""  %r = shardq.reduce_heads %p over @ranks "tp"
      : ({part}) -> tensor<{width}x2x4xf32>""", f"tensor<{width}x2x4xf32>", summed


def promised_of(most):
    width = 6
    for ranks, others in zip(RANKS, (5, 9, 0, 7, 4)):
        for name, arguments, make, op, result, what in of_promised(ranks, width, most):
            scale = ranks if name == "scatter" else 1
            for rows in (width, others):
                inputs = dict(a_of=(rows, 8)) if name == "gather" else dict(
                    p_of=(scale * rows, 8 * ranks), l_of=(scale * rows, 2 * ranks, 1))
                if name == "sum":
                    inputs.pop("l_of")
                found, want = rows, width
                if most > width and what.startswith(("rows of 'out'", "rows of 'merged'")):
                    found, want = want, found
                elif most < width:
                    found, want = found * scale, want * scale
                expected = [] if rows == width else [f"sizes disagree, {found} where {want} is expected", what]
                parts_fail(ranks, arguments, make + op, result, inputs, *expected, most=most)


def promised():
    """Results whose types say how many rows they have: others are no result."""
    promised_of(64)


def promised_slices():
    """The same in steps of more rows than inboxes hold."""
    promised_of(3)


def promised_shares():
    """Of shares that are not exchanged yet."""
    for ranks, rows in zip(RANKS, (5, 9, 0, 7, 4)):
        (p, make_p), (l, make_l) = heads_of("p", 4), lses_of("l", 2)
        for share, merged, what in (("6", "?", "share"), ("?", "6", "merged")):
            results = f"tensor<{share}x2x4xf32>", f"tensor<{merged}x2xf32>"
            for of in (6, rows):
                parts_fail(ranks, f"{p}, {l}", make_p + make_l + f"""  %r, %m = shardq.weigh_partial %p lses(%l) over @ranks "tp"
      : (tensor<?x2x4xf32>, tensor<?x2xf32>) -> ({results[0]}, {results[1]})
  %n = tensor.expand_shape %m [[0], [1, 2]] output_shape [{"%m_rows" if merged == "?" else 6}, 2, 1] : {results[1]} into tensor<{merged}x2x1xf32>
""".replace("  %n =", "  %m_rows = tensor.dim %m, %c0 : " + results[1] + "\n  %n ="), results[0],
                           dict(p_of=(of, 8), l_of=(of * ranks, 2, 1)),
                           *([] if of == 6 else [f"sizes disagree, 6 where {of} is expected", f"rows of '{what}' of shardq.weigh_partial"]))


def of_exchange(ranks, rows, tokens, body, result):
    """An exchange of a step of so many tokens, of sources with other rows."""
    (a, make_a), (s, take_s) = heads_of("a", 4, 2 if "heads_to_tokens" in body else 2 * ranks), made("s")
    arguments = f"{a}, {s}, %n: index"
    split = f"""  %d = arith.constant 0 : index
  %ids, %offsets = shardq.zigzag_split %s decodes(%d) rows(%n) over @ranks "tp" : ({VECTOR}, index, index) -> ({VECTOR}, tensor<{ranks + 1}xi32>)
"""
    heads = 2 if "heads_to_tokens" in body else 2 * ranks
    inputs = dict(entries("s", [0, tokens]), a_of=(rows, 4 * heads), n=np.array(tokens, "<i8"))
    return arguments, make_a + take_s + split + body, result, inputs


def promised_exchange():
    """Sources of an exchange, and what comes out, that have not the rows of the step, or of this rank."""
    for ranks, wrong in zip(RANKS, (5, 9, 0, 7, 4)):
        tokens = 6 * ranks
        operands = f"by(%ids, %offsets) decodes(%d) over @ranks \"tp\" : "
        types = f"{VECTOR}, tensor<{ranks + 1}xi32>, index"
        for own in ("?", 6):
            out = f"tensor<{own}x{2 * ranks}x4xf32>"
            for rows in (tokens, tokens - 1 - wrong % 4, tokens + 3):
                # With one rank nothing is pushed, unless the type is to be compared.
                of = "shardq.exchange" if ranks == 1 and own == "?" else "heads_to_tokens of shardq.push"
                expected = [] if rows == tokens else [f"sizes disagree, {rows} where {tokens} is expected",
                                                      f"rows of source 0 of {of}"]
                arguments, body, result, inputs = of_exchange(
                    ranks, rows, tokens, f"  %r = shardq.exchange heads_to_tokens(%a) {operands}(tensor<?x2x4xf32>, {types}) -> {out}", out)
                parts_fail(ranks, arguments, body, result, inputs, *expected)
            out = f"tensor<{own if own == '?' else tokens}x2x4xf32>"
            for rows in (6, wrong):
                expected = [] if rows == 6 else [f"sizes disagree, {rows} where 6 is expected",
                                                 "rows of source 0 of tokens_to_heads of shardq.push"]
                arguments, body, result, inputs = of_exchange(
                    ranks, rows, tokens, f"  %r = shardq.exchange tokens_to_heads(%a) {operands}(tensor<?x{2 * ranks}x4xf32>, {types}) -> {out}", out)
                parts_fail(ranks, arguments, body, result, inputs, *expected)
        # Types that say other numbers than the step.
        for direction, source, out, found, want in (
                ("heads_to_tokens", "?x2", f"tensor<5x{2 * ranks}x4xf32>", 5, 6),
                ("tokens_to_heads", f"?x{2 * ranks}", f"tensor<{tokens - 1}x2x4xf32>", tokens - 1, tokens)):
            arguments, body, result, inputs = of_exchange(
                ranks, tokens if direction == "heads_to_tokens" else 6, tokens,
                f"  %r = shardq.exchange {direction}(%a) {operands}(tensor<{source}x4xf32>, {types}) -> {out}", out)
            parts_fail(ranks, arguments, body, result, inputs, f"sizes disagree, {found} where {want} is expected",
                       "rows of 'inbox' of shardq.push")


def requests():
    """Lists over requests that differ."""
    for ranks, starts, lengths in zip(itertools.cycle(RANKS), ([0, 3, 9, 9], [0, 3], [0]), ([5], [5, 9, 2], [5])):
        s, take_s = made("s")
        l, take_l = made("l")
        inputs = dict(entries("s", starts), **entries("l", lengths), n=np.array(12, "<i8"))
        parts_fail(ranks, f"{s}, {l}, %n: index", take_s + take_l + EXPAND[1] + "\n  %r = arith.addi %a, %b : tensor<?xi32>",
                   VECTOR, inputs, f"sizes disagree, {len(lengths)} where {len(starts) - 1} is expected",
                   "requests of 'seq_lens' of shardq.expand_rows")
        table = np.arange(1, 9, dtype="<i4").reshape(2, 4)
        inputs = dict(entries("l", lengths), table=table)
        parts_fail(ranks, f"{l}, %table: tensor<?x?xi32>", take_l + """  %r, %i, %c = shardq.gather_blocks %table lengths(%l) over @ranks "tp"
      {block_size = 4 : i64, interleave = 2 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x?xi32>, tensor<1xi32>)""",
                   VECTOR, inputs, f"sizes disagree, {len(lengths)} where 2 is expected",
                   "requests of 'lengths' of shardq.gather_blocks")


if __name__ == "__main__":
    main(globals())
