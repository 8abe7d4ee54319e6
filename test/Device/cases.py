"""The kernels that are tested, and their MLIR: python3 cases.py [PREFIX]."""

import itertools
import random
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
    packed: tuple = ()  # element type and order of rows with scales, of `value` and the rest

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


@dataclass(frozen=True)
class Group:
    name: str
    direction: str  # gather_heads, scatter_heads or scatter_rows
    ranks: int
    heads: int  # that travel from one rank to another
    parts: tuple = (512, 64)  # widths of the sources; one for partial outputs
    element: str = "bf16"
    lse: str = "f32"
    lse_stride: bool = False  # of any strides
    mesh: int = 1  # ranks from one member to the next
    capacity: int = 64  # rows of each rank
    carried: int = 16  # rows between two ranks, where NCCL carries them
    padded: int = 0  # heads that rows of gathered queries have room for, if more


@dataclass(frozen=True)
class Lengths:
    name: str
    ranks: int
    interleave: int


@dataclass(frozen=True)
class Shards:
    name: str
    ranks: int


@dataclass(frozen=True)
class Convert:
    name: str
    width: int  # 0 for one that the type leaves open
    block: int = 64
    stride: int = 0
    slot: str = "i32"
    prefill: bool = False
    counts: bool = True


@dataclass(frozen=True)
class Filter:
    name: str
    width: int  # 0 for one that the type leaves open
    ranks: int
    interleave: int = 1
    block: int = 0  # 0 for positions without a table
    stride: int = 0
    slot: str = "i32"
    in_place: bool = False
    counts: bool = True


@dataclass(frozen=True)
class Merge:
    name: str
    ranks: int
    heads: int  # of one rank
    value: int = 512
    element: str = "bf16"
    base: str = "e"
    merged: str = ""  # type of the merged LSE, if there is one
    sink: bool = False


@dataclass(frozen=True)
class Weigh:
    name: str
    ranks: int
    heads: int
    value: int = 512
    element: str = "bf16"
    lse: str = "f32"
    base: str = "e"
    merged: bool = False


@dataclass(frozen=True)
class Sum:
    name: str
    ranks: int
    heads: int  # of one rank
    value: int = 512
    source: str = "f32"
    element: str = "bf16"


@dataclass(frozen=True)
class Rows:
    name: str
    ranks: int
    block: int  # 0 where all rows of the source are sent
    stride: int = 0
    heads: int = 0  # of a row, if it has heads
    parts: tuple = (512, 64)  # widths of the sources
    element: str = "bf16"
    mesh: int = 1  # ranks from one member to the next
    capacity: int = 48  # rows of each rank
    carried: int = 32  # rows between two ranks, where NCCL carries them
    aside: bool = False  # beside other kernels


@dataclass(frozen=True)
class Blocks:
    name: str
    ranks: int
    interleave: int
    block: int
    null: int = 0
    pool: bool = False  # the caches' blocks are an operand


@dataclass(frozen=True)
class Gathered:
    name: str
    width: int  # 0 for one that the type leaves open
    ranks: int
    interleave: int = 1
    block: int = 64
    slot: str = "i32"
    counts: bool = True


@dataclass(frozen=True)
class Table:
    name: str
    ranks: int
    interleave: int
    block: int


@dataclass(frozen=True)
class Chunk:
    name: str
    op: str  # count, split, lengths or slots
    ranks: int
    part: str = ""  # of count and lengths
    by_part: bool = False
    slot: str = "i32"
    own: bool = False  # rows of all decodes together


@dataclass(frozen=True)
class Draft:
    name: str


@dataclass(frozen=True)
class Take:
    name: str
    shape: tuple  # of a row
    element: str = "bf16"
    missing: str = ""  # as the op says it; 0 where it does not


@dataclass(frozen=True)
class Write:
    name: str
    shape: tuple  # of a row
    element: str = "bf16"
    slot: str = "i32"


@dataclass(frozen=True)
class View:
    name: str
    ranks: int
    per_block: int = 1


@dataclass(frozen=True)
class TokenSlots:
    name: str
    ranks: int  # 0 where the table is of all tokens
    interleave: int
    block: int
    stride: int = 0
    slot: str = "i64"


@dataclass(frozen=True)
class Packed:
    name: str
    packs: bool
    latent: int = 512
    element: str = "f8E4M3FN"
    rope: int = 64
    order: str = "scales_rope"


@dataclass(frozen=True)
class Full:
    name: str
    ranks: int
    pool: bool = False


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

# Rows of 8-bit values with scales; where scales end before 16 bytes; without rope.
PACKED_ATTENTION = [
    Attention("packed_h16", 16, lse="e", topk_length=True, packed=("f8E4M3FN", "scales_rope")),
    Attention("packed_h64_i8", 64, lse="two", sink=True, req=True, packed=("i8", "rope_scales")),
    Attention("packed_h128", 128, lse="e", packed=("f8E4M3FN", "scales_rope")),
    Attention("packed_h8_w144", 8, parts=(144,), value=128, lse="e", packed=("i8", "scales_rope")),
    Attention("packed_h3_w128", 3, parts=(128,), value=128, lse="e", packed=("f8E4M3FN", "rope_scales")),
    Attention("packed_h17_w662", 17, parts=(640, 22), value=640, lse="e", packed=("f8E4M3FN", "rope_scales")),
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
    TopK("topk_192", k=192),
    TopK("topk_256_holes", k=256, holes=True),
    TopK("topk_2051", k=2051),
]


EXCHANGE = [
    Exchange("exchange_q_tp3", "heads_to_tokens", 3, 5, carried=64),
    Exchange("exchange_q_tp8_w24", "heads_to_tokens", 8, 2, parts=(16, 8), carried=64),
    Exchange("exchange_q_tp2_odd", "heads_to_tokens", 2, 3, parts=(5, 2), element="f32", carried=64),
    Exchange("exchange_out_tp3", "tokens_to_heads", 3, 5, parts=(512,)),
    Exchange("exchange_out_tp4_f32", "tokens_to_heads", 4, 1, parts=(20,), element="f32"),
    Exchange("exchange_lse_tp2", "tokens_to_heads", 2, 3, parts=(), element="f32"),
]

GROUP = [
    Group("group_q_dcp2", "gather_heads", 2, 32),
    Group("group_q_dcp8_tp16", "gather_heads", 8, 2, mesh=2),
    Group("group_q_dcp3_odd", "gather_heads", 3, 5, parts=(5, 2), element="f32"),
    Group("group_q_dcp4_bytes", "gather_heads", 4, 4, parts=(656,), element="i8"),
    Group("group_q_dcp2_odd_bytes", "gather_heads", 2, 3, parts=(7,), element="i8"),
    Group("group_out_dcp2", "scatter_heads", 2, 32, parts=(512,)),
    Group("group_out_dcp8_f16", "scatter_heads", 8, 3, parts=(128,), element="f16", lse="f16",
          lse_stride=True),
    Group("group_out_dcp3_f32", "scatter_heads", 3, 5, parts=(20,), element="f32", lse="bf16",
          lse_stride=True, mesh=2),
    Group("group_out_dcp4_odd", "scatter_heads", 4, 1, parts=(19,)),
    Group("group_q_dcp4_padded", "gather_heads", 4, 16, parts=(16, 8), padded=128),
    Group("group_q_dcp2_padded_odd", "gather_heads", 2, 3, parts=(5,), element="f32", padded=7),
    Group("group_rows_dcp2", "scatter_rows", 2, 32, parts=(512,)),
    Group("group_rows_dcp8_f16", "scatter_rows", 8, 3, parts=(128,), element="f16", lse="f16",
          lse_stride=True),
    Group("group_rows_dcp3_f32", "scatter_rows", 3, 5, parts=(20,), element="f32", lse="bf16",
          lse_stride=True, mesh=2),
    Group("group_rows_dcp4_odd", "scatter_rows", 4, 1, parts=(19,)),
    Group("group_rows_dcp1", "scatter_rows", 1, 2, parts=(8,)),
]

SHARDS = [Shards("shards_2", 2), Shards("shards_8", 8), Shards("shards_1", 1), Shards("shards_256", 256)]

LENGTHS = [
    Lengths("local_2_4", 2, 4),
    Lengths("local_8_128", 8, 128),
    Lengths("local_3_1", 3, 1),
    Lengths("local_256_most", 256, 2147483647),
]

DRAFT = [Draft("draft_lengths")]

CONVERT = [
    Convert("conv_5", 5),
    Convert("conv_5_i64", 5, block=3, stride=1 << 32, slot="i64", prefill=True),
    Convert("conv_2048", 2048, stride=70, counts=False),
    Convert("conv_2048_prefill", 2048, prefill=True),
    Convert("conv_2048_i64", 2048, stride=4294967295, slot="i64"),
    Convert("conv_one_block", 5, block=1 << 32, slot="i64"),
    Convert("conv_2051", 2051, stride=1000000),
    Convert("conv_2051_i64", 2051, block=1, slot="i64", prefill=True, counts=False),
    Convert("conv_any", 0, block=9, stride=40, prefill=True),
]

FILTER = [
    Filter("filter_6", 6, 2, block=64),
    Filter("filter_6_in_place", 6, 2, block=64, in_place=True),
    Filter("filter_remap", 8, 2, interleave=2),
    Filter("filter_12_in_place", 12, 2, interleave=2, block=4, in_place=True),
    Filter("filter_2048", 2048, 8, interleave=64, block=64, stride=70),
    Filter("filter_2048_one", 2048, 1, interleave=64, block=64),
    Filter("filter_2051", 2051, 3, interleave=4, block=64),
    Filter("filter_2176_i64", 2176, 4, interleave=2, block=8, stride=4294967295, slot="i64"),
    Filter("filter_1", 1, 3, interleave=1, block=1, counts=False),
    Filter("filter_64_in_place_i64", 64, 2, interleave=8, block=16, slot="i64", in_place=True),
    Filter("filter_2051_in_place", 2051, 2, interleave=2, block=2, in_place=True, counts=False),
    Filter("filter_5000", 5000, 2, interleave=16, block=64, stride=1000000),
    Filter("filter_any", 0, 5, interleave=3, block=9),
    Filter("filter_any_in_place", 0, 2, interleave=3, in_place=True),
    Filter("filter_parts", 2051, 3, interleave=64, block=16),
    Filter("filter_parts_in_place", 6, 4, interleave=8, block=1, in_place=True, slot="i64"),
    Filter("filter_large_blocks", 40, 2, interleave=1 << 30, block=1 << 32),
]


def own_slots():
    """Filters of every number of ranks and interleave, of any width, and of one: with a table
    and without, compacted and in place."""
    numbers = random.Random(1)
    for ranks, interleave in itertools.product(range(1, 9), (1, 2, 4, 8, 64)):
        forms = list(itertools.product((64, 0), (False, True)))
        widths = [0] * len(forms) + [numbers.randint(1, 2176)]
        forms.append(forms[numbers.randrange(len(forms))])
        for width, (block, in_place) in zip(widths, forms):
            name = f"own_n{ranks}_i{interleave}_{width or 'any'}{'_table' * bool(block)}{'_in_place' * in_place}"
            yield Filter(name, width, ranks, interleave, block, 70 if block and ranks % 2 else 0, in_place=in_place)


OWN_SLOTS = list(own_slots())

MERGE = [
    Merge("merge_1", 1, 4, merged="f32"),
    Merge("merge_2_h32", 2, 32, base="two"),
    Merge("merge_4_f16", 4, 3, value=128, element="f16", merged="f16"),
    Merge("merge_8", 8, 5, merged="f32"),
    Merge("merge_8_two", 8, 2, base="two", merged="bf16"),
    Merge("merge_3_f32", 3, 2, value=20, element="f32", merged="f32"),
    Merge("merge_5_w1_f32", 5, 2, value=1, element="f32", merged="f32"),
    Merge("merge_2_w19", 2, 3, value=19, merged="f32"),
    Merge("merge_7_w5_f16", 7, 1, value=5, element="f16"),
    Merge("merge_20_w2056", 20, 2, value=2056, merged="f32"),
    Merge("merge_4_sink", 4, 3, value=128, merged="f32", sink=True),
    Merge("merge_2_sink_two", 2, 2, value=19, element="f16", base="two", sink=True),
    Merge("merge_20_sink_f32", 20, 2, value=8, element="f32", merged="f32", sink=True),
]

WEIGH = [
    Weigh("weigh_1", 1, 4, merged=True),
    Weigh("weigh_2_h64", 2, 64, base="two"),
    Weigh("weigh_4_f16", 4, 3, value=128, element="f16", lse="f16", merged=True),
    Weigh("weigh_8_two", 8, 2, base="two", lse="bf16", merged=True),
    Weigh("weigh_3_f32", 3, 2, value=20, element="f32", merged=True),
    Weigh("weigh_5_w1", 5, 2, value=1),
    Weigh("weigh_20_w2056", 20, 2, value=2056, merged=True),
]

SUM = [
    Sum("sum_1", 1, 4),
    Sum("sum_2_h32", 2, 32),
    Sum("sum_4_f16", 4, 3, value=128, element="f16"),
    Sum("sum_8_f32", 8, 5, value=20, element="f32"),
    Sum("sum_3_bf16", 3, 2, source="bf16"),
    Sum("sum_5_w1", 5, 2, value=1, source="f16", element="f32"),
    Sum("sum_20_w2056", 20, 2, value=2056),
]


ROWS = [
    Rows("gather_rows_dcp2", 2, 8, parts=(576,)),
    Rows("gather_rows_dcp2_aside", 2, 8, parts=(576,), capacity=80, aside=True),
    Rows("gather_rows_dcp3_odd_aside", 3, 4, stride=7, parts=(5, 2), element="f32", mesh=2, aside=True),
    Rows("gather_rows_dcp4_two", 4, 4, stride=7, mesh=2),
    Rows("gather_rows_dcp3_one", 3, 1),
    Rows("gather_rows_dcp8_bytes", 8, 2, parts=(656,), element="i8", capacity=16, carried=16),
    Rows("gather_rows_dcp2_odd_bytes", 2, 5, stride=6, parts=(7,), element="i8"),
    Rows("gather_rows_dcp2_odd", 2, 3, parts=(5, 2), element="f32"),
    Rows("gather_rows_dcp2_far", 2, 2, stride=1 << 32, parts=(40,), element="f16"),
    Rows("gather_rows_dcp1", 1, 4, parts=(32, 16)),
    Rows("gather_rows_dcp2_wide", 2, 2, parts=(20000, 16), capacity=8, carried=8),
    Rows("gather_rows_pcp2", 2, 0, parts=(576,)),
    Rows("gather_rows_pcp3_heads", 3, 0, heads=5, parts=(24,), mesh=2, capacity=20, carried=16),
    Rows("gather_rows_pcp4_odd", 4, 0, parts=(7,), element="i8"),
    Rows("gather_rows_pcp2_odd_heads", 2, 0, heads=3, parts=(3,), element="f32"),
    Rows("gather_rows_dcp4_queries", 4, 0, heads=4, mesh=2, capacity=16, carried=16),
    Rows("gather_rows_dcp2_odd_queries", 2, 0, heads=3, parts=(5, 2), element="f32"),
    Rows("gather_rows_dcp3_parts", 3, 0, parts=(24, 8)),
    Rows("gather_rows_dcp2_indices", 2, 0, parts=(12,), element="i32"),
    Rows("gather_rows_dcp3_requests", 3, 0, parts=(1,), element="i32"),
    Rows("gather_rows_dcp2_wide_indices", 2, 0, parts=(3,), element="i64"),
]

BLOCKS = [
    Blocks("gather_blocks_8_64", 8, 64, 64),
    Blocks("gather_blocks_4_1", 4, 1, 16, null=-1),
    Blocks("gather_blocks_2_256", 2, 256, 64, null=5),
    Blocks("gather_blocks_1", 1, 3, 1),
    Blocks("gather_blocks_most", 256, 2147483647, 2147483647),
    Blocks("gather_blocks_large", 2, 1 << 30, 1 << 32),
    Blocks("gather_blocks_pool", 4, 16, 16, pool=True),
]

GATHERED = [
    Gathered("gather_slots_5", 5, 2, 4, 4),
    Gathered("gather_slots_2048", 2048, 8, 64),
    Gathered("gather_slots_2048_alone", 2048, 2, 16, counts=False),
    Gathered("gather_slots_2048_i64", 2048, 4, 64, slot="i64"),
    Gathered("gather_slots_2051", 2051, 3, 2, 6),
    Gathered("gather_slots_2051_i64", 2051, 3, 15, 5, slot="i64", counts=False),
    Gathered("gather_slots_5000", 5000, 2, 128),
    Gathered("gather_slots_5001_i64", 5001, 7, 9, 3, slot="i64"),
    Gathered("gather_slots_any", 0, 5, 3, 9),
    Gathered("gather_slots_large", 40, 2, 1 << 30, 1 << 32, slot="i64"),
]

TABLES = [
    Table("gather_table_4", 4, 64, 64),
    Table("gather_table_2_runs", 2, 256, 64),
    Table("gather_table_3", 3, 12, 4),
    Table("gather_table_1", 1, 5, 5),
]

VIEWS = [
    View("view_table_8", 8),
    View("view_table_3_pairs", 3, 2),
    View("view_table_2_fours", 2, 4),
    View("view_table_1", 1),
    View("view_table_2_most", 2, (1 << 31) - 1),
]

TOKEN_SLOTS = [
    TokenSlots("view_slots", 0, 1, 64),
    TokenSlots("view_slots_i32", 0, 1, 16, 70, slot="i32"),
    TokenSlots("view_slots_dcp4", 4, 2, 64, 70),
    TokenSlots("view_slots_dcp3_i32", 3, 64, 64, slot="i32"),
    TokenSlots("view_slots_dcp1", 1, 1, 3),
    TokenSlots("view_slots_parts", 3, 64, 16),
]

FULL = [Full("gather_all_blocks", 4), Full("gather_all_blocks_pool", 2, pool=True)]

PACKED = [Packed(f"{verb}_{name}", verb == "packing", *facts) for verb in ("packing", "unpack") for name, facts in (
    ("e4m3_656", (512, "f8E4M3FN", 64, "scales_rope")),
    ("i8_656", (512, "i8", 64, "rope_scales")),
    ("e4m3_no_rope", (128, "f8E4M3FN", 0, "rope_scales")),
    ("i8_odd", (384, "i8", 6, "scales_rope")),
    ("e4m3_rope_aside", (128, "f8E4M3FN", 64, "scales_rope")),
)]


CHUNK = [
    *(Chunk(f"chunk_count_{part}_{ranks}", "count", ranks, part)
      for part, ranks in (("all", 1), ("all", 3), ("head", 2), ("tail", 4), ("all", 8))),
    *(Chunk(f"chunk_split_{ranks}{'_by_part' * by}", "split", ranks, by_part=bool(by))
      for ranks in (1, 2, 3, 4, 8) for by in (0, 1)),
    *(Chunk(f"chunk_lengths_{part}_{ranks}", "lengths", ranks, part)
      for ranks in (1, 2, 3, 4, 8) for part in ("head", "tail")),
    *(Chunk(f"chunk_slots_front_{ranks}{'_by_part' * by}", "slots", ranks, by_part=bool(by), slot=slot, own=True)
      for ranks, slot, by in ((1, "i32", 0), (2, "i64", 1), (3, "i32", 0), (4, "i64", 0), (8, "i32", 1))),
    *(Chunk(f"chunk_slots_{ranks}_{slot}{'_by_part' * by}", "slots", ranks, by_part=bool(by), slot=slot)
      for ranks, slot, by in ((1, "i32", 0), (2, "i64", 0), (3, "i32", 1), (4, "i64", 1), (8, "i64", 0),
                              (8, "i32", 1))),
]

TAKE = [
    Take("chunk_take_lse", (16,), "f32", "0xFF800000 : f32"),
    Take("chunk_take_odd", (3, 5), "f32", "2.0 : f32"),
    Take("chunk_take_i32", (6,), "i32", "-1 : i32"),
    Take("chunk_take_bytes", (656,), "i8"),
    Take("chunk_take_zeros", (576,)),
    Take("chunk_take_one", (), "i32", "-1 : i32"),
]

WRITE = [
    Write("chunk_write_576", (576,), slot="i64"),
    Write("chunk_write_128", (128,)),
    Write("chunk_write_656_bytes", (656,), "i8", "i64"),
    Write("chunk_write_8", (8,)),
    Write("chunk_write_odd_bytes", (7,), "i8"),
    Write("chunk_write_heads_f32", (3, 20), "f32", "i64"),
    Write("chunk_write_odd_heads", (3, 5), "f16"),
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
    kv, form = strided(case.element, "?", case.width), ""
    if case.packed:
        rope = case.width - case.value
        kv = strided("i8", "?", case.value + case.value // 32 + 2 * rope)
        form = (f", kv_format = #shardq.packed_rows<{case.value} x {case.packed[0]}, rope = {rope}, "
                f"order = {case.packed[1]}>")
    operands = q + [("kv", kv),
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
    return function(case.name, operands, f"{text} outs({outs}) {{{attributes}{form}}}")


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


def group(case):
    ranks = f"@{case.name}_ranks"
    is_gather = case.direction == "gather_heads"
    own = case.heads * (case.ranks if case.direction == "scatter_heads" else 1)
    sources = [strided(case.element, "?", own, width) for width in case.parts]
    if not is_gather:
        strides = "strided<[?, ?], offset: ?>" if case.lse_stride else "strided<[?, 1], offset: ?>"
        sources.append(f"memref<?x{own}x{case.lse}, {strides}>")
    width, heads, capacity = sum(case.parts), case.padded or case.heads * case.ranks, case.capacity
    if not is_gather:
        width += 16 // bytes_of(case.element)
        heads, capacity = case.heads, case.capacity * case.ranks
    inbox = f"memref<?x{heads}x{width}x{case.element}, #shardq.symmetric<{ranks}>>"
    names = [f"%q{i}" for i in range(len(sources))]
    arguments = ", ".join(f"{n}: {t}" for n, t in zip([*names, "%inbox"], [*sources, inbox]))
    return (f'shardq.mesh {ranks} ["dcp" = {case.ranks}, "other" = {case.mesh}]\n'
            f"func.func @{case.name}({arguments}) attributes {{carried = {case.carried} : i64}} {{\n"
            f"  shardq.push {case.direction}({', '.join(names)}) into(%inbox) over {ranks} \"dcp\" "
            f"channel 0 exchange 0 {{capacity = {capacity} : i64{', padded_heads' if case.padded else ''}}} : "
            f"({', '.join(sources)}), {inbox}\n  return\n}}\n")


def rows(case):
    ranks = f"@{case.name}_ranks"
    heads = [case.heads] if case.heads else []
    sources = [strided(case.element, "?", *heads, width) for width in case.parts]
    sizes = "x".join(str(size) for size in (*heads, sum(case.parts)))
    inbox = f"memref<?x{sizes}x{case.element}, #shardq.symmetric<{ranks}>>"
    names = [f"%q{i}" for i in range(len(sources))]
    lists = ["memref<?xi32>"] if case.block else []
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(
        [*names, *(["%blocks"] if case.block else []), "%inbox"], [*sources, *lists, inbox]))
    attributes = f"capacity = {case.capacity * case.ranks} : i64"
    if case.block:
        attributes += f", block_size = {case.block} : i64"
    if case.stride:
        attributes += f", block_stride_rows = {case.stride} : i64"
    types = ", ".join([f"({', '.join(sources)})", *lists, inbox])
    return (f'shardq.mesh {ranks} ["dcp" = {case.ranks}, "other" = {case.mesh}]\n'
            f"func.func @{case.name}({arguments}) attributes {{carried = {case.carried} : i64"
            f"{', aside' if case.aside else ''}}} {{\n"
            f"  shardq.push gather_rows({', '.join(names)}) {'blocks(%blocks) ' if lists else ''}"
            f'into(%inbox) over {ranks} "dcp" channel 0 exchange 0 {{{attributes}}} : {types}\n'
            f"  return\n}}\n")


def mesh(case):
    return f'shardq.mesh @{case.name}_ranks ["dcp" = {case.ranks}]\n'


def lengths(case):
    operands = [("lengths", strided("i32", "?")), ("result", strided("i32", "?"))]
    return mesh(case) + function(
        case.name, operands, f"shardq.local_lengths %lengths over @{case.name}_ranks \"dcp\" "
        f"outs(%result) {{interleave = {case.interleave} : i64}}")


def draft(case):
    operands = [("lengths", strided("i32", "?")), ("step", "index"), ("result", strided("i32", "?"))]
    return function(case.name, operands, "shardq.draft_lengths %lengths step(%step) outs(%result)")


def shards(case):
    operands = [(n, strided("i32", "?")) for n in ("start", "lens")] + [("rows", "index")]
    operands += [(n, strided("i32", "?")) for n in ("starts", "lengths")]
    return mesh(case) + function(
        case.name, operands, f"shardq.shard_lengths %start, %lens rows(%rows) over @{case.name}_ranks \"dcp\" "
        f"outs(%starts, %lengths)")


def convert(case):
    width = case.width or "?"
    operands = [("indices", strided("i32", "?", width)), ("table", strided("i32", "?", "?")),
                ("req", strided("i32", "?"))]
    text = "shardq.convert_indices %indices table(%table) rows(%req)"
    if case.prefill:
        operands += [("prefill", strided("i32", "?")), ("starts", strided("i32", "?"))]
        text += " prefill(%prefill, %starts)"
    operands.append(("slots", strided(case.slot, "?", width)))
    outs = "%slots"
    if case.counts:
        operands.append(("counts", strided("i32", "?")))
        outs += ", %counts"
    attributes = f"block_size = {case.block} : i64"
    if case.stride:
        attributes += f", block_stride_rows = {case.stride} : i64"
    return function(case.name, operands, f"{text} outs({outs}) {{{attributes}}}")


def filter_(case):
    width = case.width or "?"
    operands = [("indices", strided("i32", "?", width))]
    attributes = [f"interleave = {case.interleave} : i64"]
    text = "shardq.filter_indices %indices"
    if case.block:
        operands += [("table", strided("i32", "?", "?")), ("req", strided("i32", "?"))]
        text += " table(%table) rows(%req)"
        attributes.append(f"block_size = {case.block} : i64")
        if case.stride:
            attributes.append(f"block_stride_rows = {case.stride} : i64")
    if case.in_place:
        attributes.append("in_place")
    operands.append(("slots", strided(case.slot, "?", width)))
    outs = "%slots"
    if case.counts:
        operands.append(("counts", strided("i32", "?")))
        outs += ", %counts"
    return mesh(case) + function(
        case.name, operands,
        f'{text} over @{case.name}_ranks "dcp" outs({outs}) {{{", ".join(attributes)}}}')


def of_blocks(case):
    """Operands of gather_blocks, and the text of the one that may be left out."""
    pool = [("pool", "index")] if case.pool else []
    return [("table", strided("i32", "?", "?")), ("lengths", strided("i32", "?")), *pool,
            ("blocks", strided("i32", "?")), ("inverse", strided("i32", "?", "?")),
            ("count", "memref<1xi32>")], " pool(%pool)" * case.pool


def blocks(case):
    operands, pool = of_blocks(case)
    return mesh(case) + function(
        case.name, operands, f'shardq.gather_blocks %table lengths(%lengths){pool} over '
        f'@{case.name}_ranks "dcp" outs(%blocks, %inverse, %count) '
        f"{{interleave = {case.interleave} : i64, block_size = {case.block} : i64, "
        f"null_block = {case.null} : i32}}")


def gathered(case):
    width = case.width or "?"
    operands = [("indices", strided("i32", "?", width)), ("inverse", strided("i32", "?", "?")),
                ("count", "memref<1xi32>"), ("req", strided("i32", "?")),
                ("slots", strided(case.slot, "?", width))]
    outs = "%slots"
    if case.counts:
        operands.append(("counts", strided("i32", "?")))
        outs += ", %counts"
    return mesh(case) + function(
        case.name, operands, f"shardq.gathered_slots %indices blocks(%inverse, %count) rows(%req) "
        f'over @{case.name}_ranks "dcp" outs({outs}) {{interleave = {case.interleave} : i64, '
        f"block_size = {case.block} : i64}}")


def table(case):
    operands = [("inverse", strided("i32", "?", "?")), ("count", "memref<1xi32>"),
                ("table", strided("i32", "?", "?"))]
    return mesh(case) + function(
        case.name, operands, f"shardq.gathered_table %inverse, %count over @{case.name}_ranks "
        f'"dcp" outs(%table) {{interleave = {case.interleave} : i64, '
        f"block_size = {case.block} : i64}}")


def chunk(case):
    lists = {"count": [], "split": ["mine", "restore"], "lengths": ["first", "long", "own"],
             "slots": ["order", "padded"]}[case.op]
    i32, slot = strided("i32", "?"), strided(case.slot, "?")
    of = ([("slots", slot)] if case.op == "slots" else []) + [("starts", i32)]
    of += [("lens", i32)] if case.op == "lengths" else []
    of += [("decodes", "index"), ("local" if case.op == "slots" else "rows", "index")]
    outs = [(name, slot if name == "padded" else i32) for name in lists]
    over = f'over @{case.name}_ranks "dcp"'
    if case.op == "count":
        arguments = ", ".join(f"%{n}: {t}" for n, t in of)
        return mesh(case) + (
            f"func.func @{case.name}({arguments}) {{\n  %n = shardq.count_chunk_rows {case.part} "
            f"%starts decodes(%decodes) rows(%rows) {over} : {i32}\n  return\n}}\n")
    text = {"split": "chunk_split %starts decodes(%decodes) rows(%rows)",
            "lengths": f"chunk_lengths {case.part} %starts, %lens decodes(%decodes) rows(%rows)",
            "slots": "chunk_slots %slots by(%starts) decodes(%decodes) local(%local)"}[case.op]
    names = ", ".join("%" + name for name in lists)
    flags = ["by_part"] * case.by_part + ["own_decodes"] * case.own
    attributes = f" {{{', '.join(flags)}}}" if flags else ""
    return mesh(case) + function(
        case.name, of + outs, f"shardq.{text} {over} outs({names}){attributes}")


def take(case):
    rows = strided(case.element, "?", *case.shape)
    missing = f" {{missing = {case.missing}}}" if case.missing else ""
    return function(
        case.name, [("source", rows), ("rows", strided("i32", "?")), ("result", rows)],
        f"shardq.take_rows %source[%rows] outs(%result){missing}")


def write(case):
    rows = strided(case.element, "?", *case.shape)
    return function(
        case.name, [("source", rows), ("slots", strided(case.slot, "?")), ("cache", rows)],
        "shardq.write_rows %source at(%slots) into(%cache)")


def view(case):
    operands = [("table", strided("i32", "?", "?")), ("lengths", strided("i32", "?")),
                ("view", strided("i32", "?", "?"))]
    return mesh(case) + function(
        case.name, operands, f"shardq.replicated_table %table lengths(%lengths) over @{case.name}_ranks "
        f'"dcp" outs(%view) {{blocks_per_block = {case.per_block} : i64}}')


def token_slots(case):
    operands = [("table", strided("i32", "?", "?")), ("req", strided("i32", "?")),
                ("visible", strided("i32", "?")), ("slots", strided(case.slot, "?"))]
    over, attributes = "", [f"block_size = {case.block} : i64"]
    if case.ranks:
        over = f' over @{case.name}_ranks "dcp"'
        attributes.append(f"interleave = {case.interleave} : i64")
    if case.stride:
        attributes.append(f"block_stride_rows = {case.stride} : i64")
    return (mesh(case) if case.ranks else "") + function(
        case.name, operands, f"shardq.token_slots table(%table) rows(%req, %visible){over} "
        f"outs(%slots) {{{', '.join(attributes)}}}")


def full(case):
    operands, pool = of_blocks(case)
    return mesh(case) + function(
        case.name, operands, f"shardq.gather_blocks %table lengths(%lengths){pool} over @{case.name}_ranks "
        f'"dcp" outs(%blocks, %inverse, %count) {{block_size = 64 : i64, full, interleave = 64 : i64}}')


def packed(case):
    size = case.latent + case.latent // 32 + 2 * case.rope
    operands = [("packed", strided("i8", "?", size)), ("rows", strided("bf16", "?", case.latent + case.rope))]
    if case.packs:
        operands.reverse()
    (source, _), (target, _) = operands
    return function(
        case.name, operands, f"shardq.{'pack' if case.packs else 'unpack'}_rows %{source} outs(%{target}) "
        f"{{format = #shardq.packed_rows<{case.latent} x {case.element}, rope = {case.rope}, order = {case.order}>}}")


def bytes_of(element):
    return 8 if element == "i64" else 4 if element in ("f32", "i32") else 1 if element in ("i8", "f8E4M3FN") else 2


def merge(case):
    inbox = strided(case.element, "?", case.heads, case.value + 16 // bytes_of(case.element))
    operands = [("inbox", inbox), ("out", strided(case.element, "?", case.heads, case.value))]
    outs = "%out"
    if case.merged:
        operands.append(("merged", f"memref<?x{case.heads}x{case.merged}, strided<[?, ?], offset: ?>>"))
        outs += ", %merged"
    types = ", ".join(t for _, t in operands)
    sink = ""
    if case.sink:
        operands.append(("sink", strided("f32", case.heads)))
        sink = f"sink(%sink : {operands[-1][1]}) "
    arguments = ", ".join(f"%{n}: {t}" for n, t in operands)
    return mesh(case) + (
        f"func.func @{case.name}({arguments}) {{\n"
        f'  shardq.merge_lse %inbox into({outs}) {sink}over @{case.name}_ranks "dcp" '
        f"{{lse = #shardq.lse<base = {case.base}>}} : {types}\n  return\n}}\n")


def weigh(case):
    """Partial outputs and LSEs of any strides."""
    operands = [
        ("partial", strided(case.element, "?", case.heads, case.value)),
        ("lses", f"memref<?x{case.heads}x{case.lse}, strided<[?, ?], offset: ?>>"),
        ("share", strided("f32", "?", case.heads, case.value))]
    if case.merged:
        operands.append(("merged", f"memref<?x{case.heads}x{case.lse}, strided<[?, ?], offset: ?>>"))
    outs = ", ".join(f"%{n}" for n, _ in operands[2:])
    return mesh(case) + function(
        case.name, operands, f"shardq.weigh_partial %partial lses(%lses) over @{case.name}_ranks "
        f'"dcp" outs({outs}) {{lse = #shardq.lse<base = {case.base}>}}')


def sum_(case):
    operands = [("inbox", strided(case.source, "?", case.heads, case.value)),
                ("out", strided(case.element, "?", case.heads, case.value))]
    arguments = ", ".join(f"%{n}: {t}" for n, t in operands)
    types = ", ".join(t for _, t in operands)
    return mesh(case) + (
        f"func.func @{case.name}({arguments}) {{\n"
        f'  shardq.sum_partials %inbox into(%out) over @{case.name}_ranks "dcp" : {types}\n'
        "  return\n}\n")


def main():
    """Those whose names begin with the first argument, or all."""
    prefix = (sys.argv[1:] or [""])[0]
    for describe, cases in ((attention, ATTENTION), (attention, PACKED_ATTENTION), (indexer, INDEXER), (topk, TOPK),
                            (exchange, EXCHANGE), (group, GROUP), (convert, CONVERT),
                            (lengths, LENGTHS), (draft, DRAFT), (shards, SHARDS), (filter_, FILTER), (filter_, OWN_SLOTS),
                            (merge, MERGE), (rows, ROWS),
                            (blocks, BLOCKS), (gathered, GATHERED), (table, TABLES), (view, VIEWS),
                            (token_slots, TOKEN_SLOTS), (full, FULL), (packed, PACKED),
                            (weigh, WEIGH), (sum_, SUM), (chunk, CHUNK), (take, TAKE), (write, WRITE)):
        for case in cases:
            if case.name.startswith(prefix):
                print(describe(case))


if __name__ == "__main__":
    main()
