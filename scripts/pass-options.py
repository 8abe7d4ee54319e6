#!/usr/bin/env python3
"""pass-options.py TOOL [--pipelines]

Completes the reference of passes from what TOOL (shardq-opt) says of itself.
Copies standard input, the documentation that mlir-tblgen makes, and gives each
"#### Options" the values of enumerations and the defaults. With --pipelines,
writes the reference of ShardQ's pipelines instead.
"""
import re
import subprocess
import sys


class Entry:
    """A pass or pipeline of the help text."""

    def __init__(self, summary, is_pipeline):
        self.summary, self.is_pipeline = summary, is_pipeline
        self.options = {}  # name: (text, [(value, text)])


def read_help(tool):
    entries, entry, option, is_pipeline = {}, None, None, False
    for line in subprocess.check_output([tool, "--help"], text=True).splitlines():
        if line.endswith(" Pass Pipelines:"):
            is_pipeline = True
        if match := re.match(r" {6}--(\S+) +- +(.*)", line):
            entry = entries[match[1]] = Entry(match[2], is_pipeline)
        elif entry and (match := re.match(r" {8}--([^\s=]+)\S* +- +(.*)", line)):
            option = match[2], []
            entry.options[match[1]] = option
        elif option and (match := re.match(r" {4}=(\S+) +- +(.*)", line)):
            option[1].append((match[1], match[2]))
        else:
            entry = option = None
    return entries


def read_defaults(tool, passes):
    """What a pipeline of these passes says when nothing is set."""
    pipeline = f"builtin.module({','.join(passes)})"
    done = subprocess.run(
        [tool, "--dump-pass-pipeline", f"--pass-pipeline={pipeline}", "-o", "/dev/null"],
        input="module {}", text=True, capture_output=True, check=True)
    return {name: dict(item.split("=", 1) for item in options.split())
            for name, options in re.findall(r"([\w-]+)\{([^}]*)\}", done.stderr)}


def write_options(options, defaults):
    width = max(map(len, options)) + 1
    lines = ["```"]
    for name, (text, values) in options.items():
        if defaults.get(name):
            text += f" (default {defaults[name]})"
        lines.append(f"{'-' + name:{width}} : {text}")
        inner = max((len(value) for value, _ in values), default=0)
        lines += [f"{'':{width}}   {value:{inner}} : {meaning}" for value, meaning in values]
    return "\n".join(lines + ["```"])


def main():
    tool = sys.argv[1]
    entries = read_help(tool)
    if "--pipelines" in sys.argv[2:]:
        # Their defaults are in their texts: no tool prints them.
        for name, entry in entries.items():
            if entry.is_pipeline and name.startswith("shardq"):
                print(f"\n### `-{name}`\n\n_{entry.summary}_\n\n#### Options\n")
                print(write_options(entry.options, {}))
        return
    text = sys.stdin.read()
    parts = re.split(r"(?m)^(?=### `-)", text)
    names = [re.match(r"### `-([\w-]+)`", part)[1] for part in parts[1:]]
    defaults = read_defaults(tool, names)
    for i, name in enumerate(names, 1):
        if "#### Options\n" not in parts[i]:
            continue
        if name not in entries or not entries[name].options:
            sys.exit(f"pass-options: {tool} says nothing of the options of {name}")
        options = write_options(entries[name].options, defaults.get(name, {}))
        parts[i] = re.sub(r"(?s)(?<=#### Options\n\n)```\n.*?\n```", lambda _: options, parts[i])
    print("".join(parts), end="")


if __name__ == "__main__":
    main()
