#!/usr/bin/env python3
"""tidy.py BUILD: clang-tidy over ShardQ's sources that BUILD compiles.

A source that was clean is not looked at again until its text, a header of this
project that it includes, its flags or .clang-tidy change; BUILD/tidy remembers.

Sources are parsed without precompiled headers: one that lacks an include is an error.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

source = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(sys.argv[1]).resolve()
clean = build / "tidy"
clean.mkdir(exist_ok=True)

# What each object was compiled from, as the compiler said.
dependencies = {}
deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, text=True,
                      stdout=subprocess.PIPE).stdout
for block in deps.split("\n\n"):
    name, *files = block.strip().split("\n")
    dependencies[name.split(":")[0]] = [file.strip() for file in files]

digests = {}


def digest(path):
    if path not in digests:
        digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests[path]


def key(command):
    """Hash of all that decides what clang-tidy says, compiler and LLVM aside."""
    text = hashlib.sha256(command["command"].encode())
    text.update(digest(source / ".clang-tidy").encode())
    output = re.search(r" -o (\S+)", command["command"]).group(1)
    for file in sorted(dependencies.get(output, [command["file"]])):
        path = build / file
        if path.suffix == ".pch":
            continue
        if path.is_relative_to(source) or path.is_relative_to(build):
            text.update(f"{path} {digest(path)}".encode())
    return text.hexdigest()


def check(command):
    result = subprocess.run(
        ["clang-tidy-22", "--quiet", "-p", clean, command["file"]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode == 0:
        (clean / command["key"]).touch()
        return ""
    return result.stdout or result.stderr


commands = json.loads((build / "compile_commands.json").read_text())
for command in commands:
    command["command"] = re.sub(r" -include-pch \S+", "", command["command"])
(clean / "compile_commands.json").write_text(json.dumps(commands))
work = []
for command in commands:
    command["key"] = key(command)
    if not (clean / command["key"]).exists():
        work.append(command)
# The largest first, so that no core is idle at the end.
work.sort(key=lambda command: -os.path.getsize(command["file"]))

print(f"tidy: {len(work)} of {len(commands)} sources to check", flush=True)
faults = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for text in pool.map(check, work):
        if text:
            faults += 1
            print(text, flush=True)
print(f"tidy: {faults} sources with findings")
sys.exit(1 if faults else 0)
