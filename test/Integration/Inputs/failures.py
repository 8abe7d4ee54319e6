"""A rank that fails in a running program: `failures.py ACTION RANKS...`.

Each exchange of the program is struck once, each time on another rank. Every
survivor has to name that rank, in time, and nothing may be left behind.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass

from attention import attention, step
from harness import Directory, Failure, expect

# Seconds for starting, compiling and ending on a busy machine.
SLACK = 30


@dataclass
class Program:
    """A module, its step, how shardq-run rewrites it, and its exchanges in order."""

    text: str
    step: dict
    options: list
    exchanges: list
    # Exchanges are of ranks whose numbers are the same but for multiples of this.
    stride: int = 1
    # Where ranks of other groups wait for one that has stopped.
    elsewhere: tuple = ()

    def name(self, exchange):
        """What it is called where something goes wrong."""
        if exchange >= len(self.exchanges):
            return f"operation {exchange}"
        return f"{self.exchanges[exchange]} exchange {exchange} of @attention"


def by_heads(ranks):
    """q, then out, then LSE."""
    return Program(attention(ranks, lse="e"), step([1, 23, 9, 16], [20, 7, 3, 0]), ["--shard-q-tokens"],
                   ["heads_to_tokens", "tokens_to_heads", "tokens_to_heads"])


def expected(program, action, culprit, exchange, slot, epoch):
    """What a survivor says, and what the culprit itself."""
    name = re.escape(program.name(exchange))
    where = rf"\(slot {slot}, {name}, epoch {epoch}"
    # Who follows the chain of waits to its root says whom that holds up.
    seen = rf"; rank {culprit} last seen at {epoch - 1}\)"
    chain = r"(, which holds up rank \d)?$"
    if action == "kill":
        return f"peer dead: rank {culprit} died", "died by signal SIGKILL"
    if action == "stall":
        names = "|".join(re.escape(program.name(number)) for number in (exchange, *program.elsewhere))
        text = (rf"deadline: rank \d waited [\d.]+ s for rank {culprit} \(slot {slot}, ({names}), epoch {epoch}{seen}"
                rf"{chain}")
    if action == "drop-flag":
        text = (rf"deadline: rank \d waited [\d.]+ s for rank ({culprit}|\d, which waits for it) {where}{seen}"
                rf", whose signal did not arrive{chain}")
        # The culprit waits too, for the next exchange, and may give up first.
        text += rf"|peer left: rank {culprit} left the group while rank \d waited for it {where}{seen}$"
    if action == "wrong-rows":
        text = rf"wrong rows: rank {culprit} pushed \d+ rows where rank \d expected \d+ {where}\)$"
    if action == "wrong-operation":
        following = re.escape(program.name(exchange + 1))
        text = (rf"wrong operation: rank {culprit} ran {following} where rank \d expected "
                rf"{name} \(slot {slot}, epoch {epoch}\)$")
    return text, text


def processes_with(mark):
    """Processes whose environment holds the mark."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(name)
        except OSError:
            continue
    return found


def strike(program, action, ranks, exchange, slot=0, epoch=1):
    culprit = (exchange * 3 + ranks + 1) % ranks
    what = f"{action} of rank {culprit} of {ranks} in {program.name(exchange)}"
    waits = action in ("stall", "drop-flag")
    # Deadlines are four fifths of the timeout.
    timeout = 6 if waits else 4 * SLACK
    mark = f"shardq-failure-{uuid.uuid4()}"
    with Directory() as directory:
        scratch = os.path.join(directory, "tmp")
        os.mkdir(scratch)
        with open(f"{directory}/m.mlir", "w") as file:
            file.write(program.text)
        with open(f"{directory}/step.json", "w") as file:
            json.dump(program.step, file)
        fault = f"rank={culprit},operation={exchange},slot={slot},epoch={epoch},action={action}"
        begin = time.monotonic()
        # One run more: a rank that merely drops its last flag would leave.
        done = subprocess.run(
            ["shardq-run", f"{directory}/m.mlir", f"--step={directory}/step.json", *program.options,
             f"--slots={slot + 1}", f"--repeat={(slot + 1) * epoch + 1}", f"--timeout={timeout}"],
            capture_output=True, text=True, env=dict(os.environ, SHARDQ_FAULT=fault, TMPDIR=scratch, MARK=mark))
        seconds = time.monotonic() - begin
        left = processes_with(mark) + os.listdir(scratch)
    output = done.stdout + done.stderr
    expect(done.returncode == 1, f"{what}: exit status {done.returncode}\n{output}")
    expect(not left, f"{what}: left behind {left}")
    expect(seconds < (timeout if waits else 0) + SLACK, f"{what}: took {seconds:.1f} s")
    said = dict(re.findall(r"^rank (\d+): (.*)$", output, re.M))
    expect(sorted(map(int, said)) == list(range(ranks)), f"{what}: ranks {sorted(said)} spoke\n{output}")
    survivor, own = expected(program, action, culprit, exchange, slot, epoch)
    for rank, text in said.items():
        pattern = own if int(rank) == culprit else survivor
        # Who exchanges with others may have ended before.
        if (int(rank) - culprit) % program.stride:
            pattern += "|ok$"
        expect(re.match(pattern, text), f"{what}: rank {rank} says\n{text}\nexpected\n{pattern}")


def strike_all(action, cases):
    """Cases are the arguments of `strike`, but for the action."""
    # Who waits for a deadline needs no core.
    with concurrent.futures.ThreadPoolExecutor(4 if action in ("stall", "drop-flag") else 1) as pool:
        try:
            list(pool.map(lambda case: strike(case[0], action, *case[1:]), cases))
        except Failure as failure:
            sys.exit(f"{failure}")
    print(f"{action}: {len(cases)} ok")


def main():
    action, counts = sys.argv[1], [int(ranks) for ranks in sys.argv[2:]]
    cases = [(by_heads(ranks), ranks, exchange) for ranks in counts for exchange in range(3)]
    # In the middle of a longer run as well.
    strike_all(action, [*cases, (by_heads(3), 3, 1, 1, 3)])


if __name__ == "__main__":
    main()
