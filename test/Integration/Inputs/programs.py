"""Whole programs on 1, 2, 3, 4 and 8 ranks, rewritten and not: `programs.py CASE...`."""

import json
import os
import signal
import subprocess
import time

import numpy as np
from attention import BLOCK, DIMS, HEADS, INDEX_DIM, INDEX_HEADS, SCALE, STRIDE, TOPK, VALUE
from attention import attention, step
from context_failures import chunks, decode, gate, shards
import indexer
import sparse_mla
import splits
from harness import Directory, expect, main, optimize, round_to, run, widen

RANKS = (1, 2, 3, 4, 8)
OPEN = "open"
FEW = "closed: fewer prefill tokens than min-tokens"
SHORT = "closed: no prefill sequence is longer than top-k"
PADDING = "closed: padding among the prefill tokens"
EMPTY = "closed: a rank would own no token"
CAPACITY = "closed: the step does not fit the exchange buffers"

PREFILL = step([23, 9, 16], [7, 3, 0])


def verify(ranks, batch, gate, *options, **program):
    """--verify agrees, with this gate and the rows where the split puts them."""
    with Directory() as directory:
        paths = {name: os.path.join(directory, name) for name in ("m.mlir", "step.json", "report.json")}
        with open(paths["m.mlir"], "w") as file:
            file.write(attention(ranks, **program))
        with open(paths["step.json"], "w") as file:
            json.dump(batch, file)
        done = subprocess.run(
            ["shardq-run", paths["m.mlir"], f"--ranks={ranks}", f"--step={paths['step.json']}",
             "--verify", f"--report={paths['report.json']}", optimize(), *options],
            capture_output=True, text=True)
        what = f"{ranks} ranks, {batch}, {options}, {program}"
        expect(done.returncode == 0, f"{what}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        with open(paths["report.json"]) as file:
            report = json.load(file)
    # A world of one has nothing to exchange.
    gate = gate if ranks > 1 else "none: nothing was rewritten"
    expect(report["agree"] and not report["problems"], f"{what}: {report['problems']}")
    expect(report["gate"] == gate, f"{what}: gate {report['gate']}, expected {gate}")
    speculative = program.get("speculative", 0)
    lens = batch["query_lens"]
    leading = next((i for i, n in enumerate(lens) if n > 1 + speculative), len(lens))
    decodes, rows = sum(lens[:leading]), sum(lens) + batch.get("padding_rows", 0)
    expect(report["decode_rows"] == decodes, f"{what}: {report['decode_rows']} decode rows")
    expected = [rows] * ranks
    if gate == OPEN:
        expected = [decodes + group.size for group in splits.groups(lens[leading:], ranks)]
    found = [rank["tokens"] for rank in report["ranks"]]
    expect(found == expected, f"{what}: rows {found}, expected {expected}")
    units = [error["unit"] for error in report["rewritten"]["errors"]]
    one = ["ulp", "lse"] if program.get("lse") else ["ulp"]
    expect(units == one * program.get("layers", 1), f"{what}: results {units}")


def all_prefill():
    for ranks in RANKS:
        verify(ranks, PREFILL, OPEN)
    verify(3, step([40], [0]), OPEN, "--seed=1")


MIXED = step([1, 1, 21, 1, 9], [5, 30, 0, 20, 11])


def mixed():
    for ranks in RANKS:
        # Two decodes, and a short request behind a long one, which is prefill.
        verify(ranks, MIXED, OPEN, f"--seed={ranks}")
        # With speculative tokens; the first request would be prefill without.
        verify(ranks, step([3, 1, 2, 19, 2], [5, 30, 40, 0, 20], speculative=2), OPEN, speculative=2)
    # The long context of a decode does not open the gate for short prefill.
    verify(3, step([1, 7, 1], [100, 1, 7]), SHORT)


def closed_by_few_tokens():
    for ranks in RANKS[1:]:
        verify(ranks, PREFILL, FEW, "--min-tokens=49")
    verify(3, PREFILL, OPEN, "--min-tokens=48")
    # Decodes alone.
    verify(4, step([1, 1, 1], [100, 0, 9]), FEW)


def closed_by_short_sequences():
    # Top-k is 8.
    for ranks in RANKS[1:]:
        verify(ranks, step([8, 8, 8], [0, 0, 0]), SHORT)
    verify(3, step([8, 8, 8], [0, 1, 0]), OPEN)


def closed_by_padding():
    for ranks in RANKS[1:]:
        verify(ranks, step([23, 9], [7, 3], padding=1), PADDING)
    verify(3, step([1, 23, 9], [20, 7, 3], padding=15), PADDING)


def closed_by_an_empty_rank():
    for ranks, length in ((3, 2), (4, 5), (8, 13)):
        verify(ranks, step([length], [30]), EMPTY)
    # Nothing is empty with two ranks and two tokens, or with another request.
    verify(2, step([2], [30]), OPEN)
    verify(4, step([5, 3], [30, 0]), OPEN)


def closed_by_capacity():
    batch = step([1, 23, 9], [20, 7, 3])
    for ranks in RANKS[1:]:
        # All rows of the step, decodes too, in the buffers of out.
        verify(ranks, batch, CAPACITY, "--max-tokens=32")
    verify(3, batch, OPEN, "--max-tokens=33")
    # The fullest rank in those of q: one-token requests are all rank 0's, and
    # there are more than were planned for.
    lens = [4] + [1] * 26
    for ranks in (2, 3, 4):
        full = max(group.size for group in splits.groups(lens, ranks))
        expect(full > -(-30 // ranks) + 2, f"{full} rows of 30 fit")
        verify(ranks, step(lens, [20] * 27), CAPACITY, "--max-tokens=30", "--max-requests=1")


def zero_length_requests():
    for ranks in RANKS:
        verify(ranks, step([0, 17, 0, 0, 20, 0], [12, 3, 0, 50, 0, 0]), OPEN)
    verify(3, step([0, 0, 1, 0, 30], [12, 0, 9, 0, 0]), OPEN)
    verify(4, step([0, 0, 0], [5, 0, 90]), FEW)


def one_token():
    for ranks in RANKS:
        verify(ranks, step([1], [100 * (ranks % 2)]), FEW)


def more_ranks_than_tokens():
    for ranks, tokens in ((3, 2), (4, 2), (4, 3), (8, 3), (8, 7)):
        verify(ranks, step([tokens], [30]), EMPTY)
    # Enough for all, but not dealt to all.
    verify(8, step([4, 4], [30, 30]), EMPTY)
    verify(8, step([8], [30]), OPEN)


def empty_step():
    for ranks in RANKS:
        verify(ranks, step([], []), FEW)
    # Nothing but graph padding.
    verify(3, step([], [], padding=3), SHORT)


def micro_batches():
    for ranks in RANKS:
        verify(ranks, PREFILL, OPEN, "--slots=2", "--repeat=4")
    verify(3, MIXED, OPEN, "--slots=3", "--repeat=7", lse="e")


def layers():
    for ranks in RANKS:
        verify(ranks, PREFILL, OPEN, "--repeat=3", layers=3)
    verify(4, step([2, 1, 30], [40, 3, 0], speculative=1), OPEN, layers=3, lse="two",
           speculative=1, sink=True)
    verify(3, step([8], [0]), SHORT, layers=3)


def lse():
    for ranks in RANKS:
        verify(ranks, MIXED, OPEN, lse="e")
    verify(3, PREFILL, OPEN, lse="two", sink=True)


def element_types():
    for ranks, element in zip(RANKS, ("f16", "f32", "f16", "f32", "f16")):
        verify(ranks, PREFILL, OPEN, element=element, lse="e")
    verify(8, MIXED, OPEN, element="f32")


def against_numpy():
    """Arguments and results of a rewritten program against this directory's references."""
    lens, context = [1, 2, 17, 1, 12], [30, 20, 0, 20, 11]
    seq, rows, blocks = np.add(lens, context), sum(lens) + 2, 12
    case = indexer.Case(3, rows=rows, heads=INDEX_HEADS, dim=INDEX_DIM, k=TOPK, block=BLOCK,
                        requests=len(lens), blocks=blocks, integers=True)
    case.req = np.repeat(np.arange(len(lens)), lens).astype("<i4")
    case.visible = np.concatenate([np.arange(c, c + n) + 1 for n, c in zip(lens, context)]).astype("<i4")
    rng = case.rng
    for padding in (0, 2):
        rows = sum(lens) + padding
        topk = np.full((rows, TOPK), -1, "<i4")
        for t in range(sum(lens)):
            positions, keys = case.candidates(t)
            scores = case.weights[t] @ np.maximum(widen(case.q[t]) @ widen(case.keys[keys]).T, 0)
            chosen = np.sort(positions[np.lexsort((positions, -scores))[:TOPK]])
            topk[t, :chosen.size] = chosen
        table = rng.permutation(len(lens) * blocks).reshape(len(lens), blocks).astype("<i4")
        req = np.concatenate([case.req, np.full(padding, -1, "<i4")])
        pages = table[req[:, None], topk // BLOCK]
        slots = np.where(topk < 0, -1, pages * STRIDE + topk % BLOCK).astype("<i4")
        q = [round_to("bf16", rng.standard_normal((rows, HEADS, d))) for d in DIMS]
        kv = round_to("bf16", rng.standard_normal((table.size * STRIDE, sum(DIMS))))
        kv[np.setdiff1d(np.arange(kv.shape[0]), slots)] = 0x7FC0
        sink = rng.standard_normal(HEADS).astype("<f4")
        inputs = dict(start=np.concatenate([[0], np.cumsum(lens)]).astype("<i4"),
                      lens=seq.astype("<i4"), rows=np.array(rows, "<i8"), table=table,
                      itable=case.table, iq_0=case.q[:rows], iw_0=case.weights[:rows], ik_0=case.keys,
                      q0_0=q[0], q1_0=q[1], kv_0=kv, sink_0=sink)
        expected = sparse_mla.reference(q, kv, slots, VALUE, req=req, sink=sink, scale=SCALE)
        results = []
        # With padding both programs run head-sharded.
        for ranks in RANKS if not padding else (4,):
            text = attention(ranks, lse="e", sink=True)
            for rewrite in ((), ("--shard-q-tokens",)):
                found = run(text, inputs, *rewrite)
                sparse_mla.check("bf16", found, expected, "e")
                results.append(found)
        # Rows are computed alike wherever they are computed.
        for found in results[1:]:
            expect(all(np.array_equal(a, b) for a, b in zip(found, results[0])),
                   "results depend on the number of ranks")


def children(parent):
    """Processes of a parent that still run."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, ppid = file.read().rsplit(")", 1)[1].split()[:2]
        except (OSError, ValueError):
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(name))
    return sorted(found)


def stop_ranks(ranks, text, batch, *options):
    """Runs a program many times while a rank after the other is stopped for a while."""
    with Directory() as directory:
        module, file = os.path.join(directory, "m.mlir"), os.path.join(directory, "step.json")
        with open(module, "w") as stream:
            stream.write(text)
        with open(file, "w") as stream:
            json.dump(batch, stream)
        command = ["shardq-run", module, f"--step={file}", *options, "--slots=2", optimize()]
        # How long a run takes is the machine's affair: one that was over before two
        # ranks could be stopped is made longer.
        for repeat in (400, 1600, 6400, 25600):
            stopped = 0
            with subprocess.Popen([*command, f"--repeat={repeat}"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) as tool:
                deadline = time.monotonic() + 60
                while tool.poll() is None and time.monotonic() < deadline and stopped < 4:
                    processes = children(tool.pid)
                    if len(processes) == ranks:
                        slow = processes[stopped * 3 % ranks]
                        try:
                            os.kill(slow, signal.SIGSTOP)
                            time.sleep(0.2)
                            os.kill(slow, signal.SIGCONT)
                        except ProcessLookupError:  # The run is over.
                            break
                        stopped += 1
                    time.sleep(0.03)
                output = tool.communicate()[0]
            expect(tool.returncode == 0, f"{ranks} ranks: exit status {tool.returncode}\n{output}")
            if stopped > 1:
                return
        expect(False, f"{ranks} ranks: the run was over before it could be slowed down")


def slow_rank():
    """A rank that is stopped for a while holds up the others and changes nothing."""
    for ranks in (2, 3, 4, 8):
        stop_ranks(ranks, attention(ranks, layers=2), PREFILL, "--shard-q-tokens")


def slow_context():
    """The same where KV caches, requests and rows are divided."""
    for ranks, program in ((3, decode(3)), (4, gate(4, "mixed-step")), (2, chunks(2, 1)), (8, shards(8))):
        stop_ranks(ranks, program.text, program.step, *program.options)


if __name__ == "__main__":
    main(globals())
