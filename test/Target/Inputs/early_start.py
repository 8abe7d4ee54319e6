"""Checks that PTX kernels which may start early wait before they touch memory.

    shardq-compile ... --emit=ptx -o - | python3 early_start.py

Each kernel waits once for the one in front of it, before any access to memory but its
parameters, and lets the next one come behind that, unless it waits for other ranks. One that
signals and waits may look ahead: it reads what its push does not write, writes nothing but its
own shared memory, and waits a second time where it ends.
Prints the numbers of kernels and of those that look ahead.
"""

import re
import sys

TOUCHES = re.compile(r"\b(ld\.(?!param)|st\.|atom|red\.|cp\.|ldmatrix|mbarrier|call\b|bar\.)")
WRITES = re.compile(r"\b(st\.(?!shared)|atom|red\.|cp\.|call\b)")
WAITS_FOR_PEERS = re.compile(r"shardq_(wait|signal|announce)")


def looks_ahead(name, waits):
    return len(waits) == 2 and re.search(r"shardq_signal\w*_wait", name)


def check(name, body):
    waits = [m.start() for m in re.finditer(r"griddepcontrol\.wait", body)]
    lets = [m.start() for m in re.finditer(r"griddepcontrol\.launch_dependents", body)]
    if len(waits) != 1 and not looks_ahead(name, waits):
        return f"{name} waits {len(waits)} times for the kernel in front of it"
    touch = (WRITES if looks_ahead(name, waits) else TOUCHES).search(body)
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
    faults, ahead = [], 0
    for text in entries:
        name, body = re.match(r"([\w$]+)\((.*)", text, re.S).groups()
        faults.append(check(name, body[body.index("{"):]))
        ahead += bool(looks_ahead(name, re.findall(r"griddepcontrol\.wait", body)))
    for fault in filter(None, faults):
        print(fault)
    print(f"{len(entries)} kernels, {ahead} look ahead")
    return any(faults)


if __name__ == "__main__":
    sys.exit(main())
