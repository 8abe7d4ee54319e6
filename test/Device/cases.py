"""The kernels that are tested, and their MLIR: python3 cases.py [PREFIX]."""

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    name: str
    heads: int
    parts: tuple = (512, 64)  # widths of q
    value: int = 512
    element: str = "bf16"
    slot: str = "i32"
    req: bool = False
    topk_length: bool = False
    sink: bool = False
    lse: str = ""  # "e" or "two"
    scale: float = 0.0721

    @property
    def width(self):
        return sum(self.parts)


@dataclass(frozen=True)
class Indexer:
    name: str
    heads: int = 64
    dim: int = 128
    element: str = "bf16"
    block: int = 64
    stride: int = 64


@dataclass(frozen=True)
class TopK:
    name: str
    k: int = 2048
    holes: bool = False


@dataclass(frozen=True)
class Exchange:
    name: str
    direction: str  # as the op says it
    ranks: int
    heads: int  # that travel from one rank to another
    parts: tuple = (512, 64)  # widths of the sources; () for rows of one element a head
    element: str = "bf16"
    capacity: int = 64  # rows of the inbox
    carried: int = 16  # rows between two ranks, where NCCL carries them


ATTENTION = [
    # The models' shapes, with everything that is optional.
    Attention("mla_h1", 1, lse="e"),
    Attention("mla_h8", 8, lse="e", req=True),
    Attention("mla_h16", 16, lse="e", topk_length=True, sink=True),
    Attention("mla_h24", 24, lse="two", slot="i64"),
    Attention("mla_h31", 31, lse="e", req=True, sink=True),
    Attention("mla_h64", 64, lse="two", topk_length=True, sink=True, req=True),
    Attention("mla_h65", 65, lse="e"),
    Attention("mla_h96", 96, lse="e", topk_length=True),
    Attention("mla_h128", 128, lse="e", req=True, topk_length=True, sink=True),
    # One part; no rope; f16; no LSE.
    Attention("mla_h128_one_part", 128, parts=(576,)),
    Attention("mla_h16_no_rope", 16, parts=(512,), element="f16", lse="e"),
    Attention("mla_h40_f16", 40, element="f16", lse="two", sink=True),
    # Widths that no fast path takes, or of which parts are zeros.
    Attention("mla_h3_w40_v24", 3, parts=(40,), value=24, lse="e"),
    Attention("mla_h17_w37_v19", 17, parts=(20, 17), value=19, lse="e", scale=0.2),
    Attention("mla_h1_w8_v8", 1, parts=(8,), value=8, lse="e", scale=0.5),
    Attention("mla_h33_w1100_v1024", 33, parts=(1100,), value=1024, lse="e"),
]

INDEXER = [
    Indexer("idx_h64"),
    Indexer("idx_h32_f16", heads=32, element="f16"),
    Indexer("idx_h64_stride", stride=160),
    Indexer("idx_h5_d40", heads=5, dim=40, block=3, stride=5),
    Indexer("idx_h128_d256", heads=128, dim=256),
    Indexer("idx_h70_d27", heads=70, dim=27, block=16, stride=16),
]

TOPK = [
    TopK("topk_2048"),
    TopK("topk_2048_holes", holes=True),
    TopK("topk_5", k=5),
    TopK("topk_64_holes", k=64, holes=True),
]


EXCHANGE = [
    Exchange("exchange_q_tp3", "heads_to_tokens", 3, 5, carried=64),
    Exchange("exchange_q_tp8_w24", "heads_to_tokens", 8, 2, parts=(16, 8), carried=64),
    Exchange("exchange_q_tp2_odd", "heads_to_tokens", 2, 3, parts=(5, 2), element="f32", carried=64),
    Exchange("exchange_out_tp3", "tokens_to_heads", 3, 5, parts=(512,)),
    Exchange("exchange_out_tp4_f32", "tokens_to_heads", 4, 1, parts=(20,), element="f32"),
    Exchange("exchange_lse_tp2", "tokens_to_heads", 2, 3, parts=(), element="f32"),
]


def strided(element, *sizes):
    """A memref type of which only the last stride is known."""
    dims = "x".join(str(size) for size in sizes)
    strides = ", ".join(["?"] * (len(sizes) - 1) + ["1"])
    return f"memref<{dims}x{element}, strided<[{strides}], offset: ?>>"


def function(name, operands, text, attributes=""):
    """A func.func of one op; `operands` are (name, type)."""
    arguments = ", ".join(f"%{n}: {t}" for n, t in operands)
    types = ", ".join(t for _, t in operands)
    return (f"func.func @{name}({arguments}) {attributes}{{\n"
            f"  {text} : ({types}) -> ()\n  return\n}}\n")


def attention(case):
    q = [(f"q{i}", strided(case.element, "?", case.heads, width))
         for i, width in enumerate(case.parts)]
    operands = q + [("kv", strided(case.element, "?", case.width)),
                    ("slots", strided(case.slot, "?", "?"))]
    names = ", ".join("%" + n for n, _ in q)
    text = f"shardq.sparse_mla q({names}) kv(%kv) slots(%slots)"
    if case.req:
        operands.append(("req", strided("i32", "?")))
        text += " rows(%req)"
    if case.topk_length:
        operands.append(("length", strided("i32", "?")))
        text += " topk_length(%length)"
    if case.sink:
        operands.append(("sink", strided("f32", case.heads)))
        text += " sink(%sink)"
    operands.append(("out", strided(case.element, "?", case.heads, case.value)))
    outs = "%out"
    attributes = f"scale = {case.scale} : f32"
    if case.lse:
        operands.append(("lse", strided("f32", "?", case.heads)))
        outs += ", %lse"
        attributes += f", lse = #shardq.lse<base = {case.lse}>"
    return function(case.name, operands, f"{text} outs({outs}) {{{attributes}}}")


def indexer(case):
    operands = [
        ("q", strided(case.element, "?", case.heads, case.dim)),
        ("w", strided("f32", "?", case.heads)),
        ("keys", strided(case.element, "?", case.dim)),
        ("table", strided("i32", "?", "?")),
        ("req", strided("i32", "?")),
        ("visible", strided("i32", "?")),
        ("result", strided("i32", "?", 64)),
    ]
    return function(
        case.name, operands,
        "shardq.indexer q(%q) weights(%w) keys(%keys) table(%table) "
        "rows(%req, %visible) outs(%result) "
        f"{{block_size = {case.block} : i64, block_stride_rows = {case.stride} : i64}}")


def topk(case):
    operands = [("scores", strided("f32", "?", "?")), ("visible", strided("i32", "?")),
                ("result", strided("i32", "?", case.k))]
    return function(case.name, operands,
                    "shardq.topk %scores visible(%visible) outs(%result)",
                    "attributes {holes} " if case.holes else "")


def exchange(case):
    own = case.heads if case.direction == "heads_to_tokens" else case.heads * case.ranks
    all_heads = case.heads * case.ranks if case.direction == "heads_to_tokens" else case.heads
    sources = [strided(case.element, "?", own, width) for width in case.parts]
    sources = sources or [strided(case.element, "?", own)]
    width = f"x{sum(case.parts)}" if case.parts else ""
    inbox = f"memref<?x{all_heads}{width}x{case.element}, #shardq.symmetric<@{case.name}_ranks>>"
    names = [f"%q{i}" for i in range(len(sources))]
    types = [*sources, "memref<?xi32>", f"memref<{case.ranks + 1}xi32>"]
    arguments = ", ".join(
        f"{name}: {t}" for name, t in
        zip([*names, "%ids", "%offsets", "%inbox"], [*types, inbox]))
    return (f'shardq.mesh @{case.name}_ranks ["tp" = {case.ranks}]\n'
            f"func.func @{case.name}({arguments}, %decodes: index) "
            f"attributes {{carried = {case.carried} : i64}} {{\n"
            f"  shardq.push {case.direction}({', '.join(names)}) by(%ids, %offsets) "
            f"decodes(%decodes) into(%inbox) over @{case.name}_ranks \"tp\" channel 0 exchange 0 "
            f"{{capacity = {case.capacity} : i64}} : ({', '.join(sources)}), {types[-2]}, "
            f"{types[-1]}, {inbox}\n  return\n}}\n")


def main():
    """Those whose names begin with the first argument, or all."""
    prefix = (sys.argv[1:] or [""])[0]
    for write, group in ((attention, ATTENTION), (indexer, INDEXER), (topk, TOPK),
                         (exchange, EXCHANGE)):
        for case in group:
            if case.name.startswith(prefix):
                print(write(case))


if __name__ == "__main__":
    main()
