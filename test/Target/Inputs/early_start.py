"""Checks that PTX kernels which may start early wait before they touch memory.

    shardq-compile ... --emit=ptx -o - | python3 early_start.py

Each kernel waits once for the one in front of it, before any access to memory but its
parameters, and lets the next one come behind that, unless it waits for other ranks.
Prints the number of kernels.
"""

import re
import sys

TOUCHES = re.compile(r"\b(ld\.(?!param)|st\.|atom|red\.|cp\.|ldmatrix|mbarrier|call\b|bar\.)")
WAITS_FOR_PEERS = re.compile(r"shardq_(wait|signal|announce)")


def check(name, body):
    waits = [m.start() for m in re.finditer(r"griddepcontrol\.wait", body)]
    lets = [m.start() for m in re.finditer(r"griddepcontrol\.launch_dependents", body)]
    if len(waits) != 1:
        return f"{name} waits {len(waits)} times for the kernel in front of it"
    touch = TOUCHES.search(body)
    if touch and touch.start() < waits[0]:
        line = body[touch.start():].split(";")[0]
        return f"{name} has '{line}' before it waits"
    if len(lets) != (0 if WAITS_FOR_PEERS.search(name) else 1):
        return f"{name} lets the next kernel come {len(lets)} times"
    if lets and lets[0] < waits[0]:
        return f"{name} lets the next kernel come before it waits"
    return None


def main():
    entries = re.split(r"\.entry ", sys.stdin.read())[1:]
    faults = []
    for text in entries:
        name, body = re.match(r"([\w$]+)\((.*)", text, re.S).groups()
        faults.append(check(name, body[body.index("{"):]))
    for fault in filter(None, faults):
        print(fault)
    print(f"{len(entries)} kernels")
    return any(faults)


if __name__ == "__main__":
    sys.exit(main())
