"""Checks the documentation of every op in an ODS file.

Each op must have a summary, a description with **Constraints:** and at least one
```mlir block; each block must run through the optimizer's round trip.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import textwrap

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file")
parser.add_argument("--tblgen", required=True)
parser.add_argument("--include", action="append", default=[])
parser.add_argument("--opt", required=True)
parser.add_argument("--output", required=True, type=pathlib.Path)
arguments = parser.parse_args()

dump = subprocess.run(
    [arguments.tblgen, "--dump-json", arguments.file]
    + [f"-I{directory}" for directory in arguments.include],
    check=True, stdout=subprocess.PIPE)
records = json.loads(dump.stdout)

arguments.output.mkdir(parents=True, exist_ok=True)
ops = examples = faults = 0


def fault(op, text):
    global faults
    faults += 1
    print(f"{op}: {text}", file=sys.stderr)


for record in records["!instanceof"]["Op"]:
    definition = records[record]
    dialect = records[definition["opDialect"]["def"]]["name"]
    if dialect != "shardq":
        continue
    ops += 1
    name = f"{dialect}.{definition['opName']}"
    description = definition["description"] or ""
    if not definition["summary"]:
        fault(name, "no summary")
    if not description.strip():
        fault(name, "no description")
    if "**Constraints:**" not in description:
        fault(name, "no constraints")
    blocks = re.findall(r"^[ ]*```mlir\n(.*?)^[ ]*```", description, re.S | re.M)
    if not blocks:
        fault(name, "no example")
    if blocks and not any(name in block for block in blocks):
        fault(name, "no example shows the op")
    for number, block in enumerate(blocks):
        examples += 1
        path = arguments.output / f"{definition['opName']}-{number}.mlir"
        path.write_text(textwrap.dedent(block))
        result = subprocess.run(
            [arguments.opt, "--verify-roundtrip", str(path), "-o", "/dev/null"],
            stderr=subprocess.PIPE, text=True)
        if result.returncode:
            fault(name, f"example {number} fails\n{result.stderr}")

print(f"{ops} ops, {examples} examples, {faults} faults")
sys.exit(1 if faults else 0)
