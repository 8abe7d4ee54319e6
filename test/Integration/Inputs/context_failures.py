"""A rank that fails where a KV cache, requests or rows are divided: `context_failures.py ACTION`.

Each kind of exchange is struck: queries and outputs of decode steps (also in slices), gathered KV
(wherever it fits, and where the step says so), rows of chunks, rows and outputs of token shards. What
survivors have to say is as in failures.py.
"""

import json
import os
import subprocess
import sys

from failures import Program, strike_all

INPUTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "Run", "Inputs")
# Steps of more rows than inboxes hold have gather and merge once more, in a loop, before the others.
SLICED = ["gather_heads", "scatter_heads"] * 2


def program(script, arguments, step, passes, exchanges, *options, **facts):
    text = subprocess.run([sys.executable, "-B", f"{INPUTS}/{script}.py", *map(str, arguments)], check=True,
                          capture_output=True, text=True).stdout
    with open(f"{INPUTS}/{step}.json") as file:
        return Program(text, json.load(file), [f"--pipeline=builtin.module({passes})", *options], exchanges,
                       **facts)


def decode(ranks, *options):
    return program("dcp", (ranks, ranks, 4), "decode-step", "shardq-dcp{step=decode remarks=false}", SLICED, *options)


def gather(ranks):
    return program("dcp", (ranks, ranks, 2), "mixed-step", "shardq-dcp{step=gather remarks=false}",
                   ["gather_rows", *SLICED])


def gate(ranks, step):
    return program("dcp", (ranks, ranks, 64), step, "shardq-dcp{remarks=false}", ["gather_rows", *SLICED])


def chunks(pcp, tp):
    return program("pcp", (pcp, tp, 1), "mixed-step", "shardq-pcp{remarks=false}", ["gather_rows"] * 4, stride=tp)


def chunks_of_keys(pcp, dcp):
    """KV is gathered for chunks; the merge for steps without prefill follows."""
    return program("pcp", (pcp, dcp, dcp, 4), "mixed-step", "shardq-pcp{remarks=false},shardq-dcp{remarks=false}",
                   ["gather_rows"] * 3 + ["gather_heads", "scatter_heads"] + ["gather_rows"] * 2, elsewhere=(5,))


def shards(ranks):
    return program("dcp", (ranks, ranks, 4, "tokens"), "tokens-decode-step", "shardq-dcp{step=decode remarks=false}",
                   ["gather_rows", "gather_rows", "scatter_rows"] * 2)


# With the arguments of `strike` behind the action: ranks, exchange, slot, epoch.
CASES = [
    (lambda: decode(4), 4, 2),
    (lambda: decode(3), 3, 3),
    (lambda: decode(2, "--max-tokens=3"), 2, 1, 0, 2),
    (lambda: gather(8), 8, 0),
    (lambda: gate(3, "mixed-step"), 3, 0),
    (lambda: gate(2, "decode-step"), 2, 4),
    (lambda: chunks(2, 2), 4, 1),
    (lambda: chunks_of_keys(2, 2), 4, 2),
    (lambda: shards(2), 2, 5),
    # In the second slot, after other runs.
    (lambda: shards(4), 4, 4, 1, 2),
]


if __name__ == "__main__":
    strike_all(sys.argv[1], [(make(), *case) for make, *case in CASES])
