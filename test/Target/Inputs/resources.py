"""resources.py [--update] TABLE EXAMPLE...

Compiles examples for sm_90a and compares what their kernels take with TABLE:
registers, bytes of static shared memory, threads, bytes of dynamic shared memory.
Fails where a figure grew, and where a kernel came or went. With --update, writes
the table instead. Needs shardq-opt, mlir-translate and ptxas in PATH:

  PATH=$PWD/build/dev/bin:/usr/lib/llvm-22/bin:/usr/local/cuda/bin:$PATH \\
    python3 test/Target/Inputs/resources.py --update \\
    test/Target/Inputs/resources.txt examples/*.mlir

Figures are those of one ptxas, which the table names; another release's are
printed and not compared.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FIGURES = ["registers", "shared", "threads", "dynamic"]
PIPELINE = ("builtin.module(shardq-pcp{remarks=false},shardq-dcp{remarks=false},"
            "shard-q-tokens{remarks=false},shardq-to-nvvm{arch=sm_90a})")


def ptxas_release():
    # The first that the compiler tries is $CUDA_HOME/bin, which lit.cfg.py hands on.
    ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
    text = subprocess.run([ptxas, "--version"], check=True, capture_output=True,
                          text=True).stdout
    return re.search(r"release (\S+?),", text).group(1)


def measure(example):
    """{kernel: {figure: number}} of one program."""
    with tempfile.TemporaryDirectory() as directory:
        module = pathlib.Path(directory, "module.mlir")
        subprocess.run(["shardq-opt", example, f"--pass-pipeline={PIPELINE}",
                        "-o", module], check=True)
        text = module.read_text(errors="replace")
        ir = subprocess.run(["mlir-translate", "--mlir-to-llvmir", module], check=True,
                            capture_output=True, text=True, errors="replace").stdout
    names = dict(re.findall(r'^@(shardq_kernel_name\w*) = .*? c"(\w+)\\00"', ir, re.M))
    table = re.search(r"^@shardq_image_kernels = .*$", ir, re.M).group(0)
    attribute = re.search(r"shardq\.resources = \{.*\}\}", text).group(0)
    kernels = {}
    for symbol, threads, dynamic in re.findall(
            r"\{ ptr @(\w+), i32 (\d+), i32 (\d+) \}", table):
        taken = re.search(
            rf"\b{names[symbol]} = \{{registers = (\d+) : i32, shared = (\d+) : i32", attribute)
        kernels[names[symbol]] = dict(
            zip(FIGURES, map(int, [*taken.groups(), threads, dynamic])))
    return kernels


def write_table(path, release, programs):
    lines = [f"# ptxas {release}, sm_90a. Written by resources.py --update.",
             "# program kernel " + " ".join(FIGURES)]
    for program, kernels in programs.items():
        for name, figures in sorted(kernels.items()):
            lines.append(" ".join([program, name, *(str(figures[f]) for f in FIGURES)]))
    path.write_text("\n".join(lines) + "\n")


def read_table(path):
    text = path.read_text()
    release = re.match(r"# ptxas (\S+),", text).group(1)
    programs = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            program, name, *figures = line.split()
            programs.setdefault(program, {})[name] = dict(zip(FIGURES, map(int, figures)))
    return release, programs


def compare(expected, programs):
    """What is worse than in the table."""
    faults = []
    for program, kernels in programs.items():
        known = expected.get(program, {})
        for name in sorted(known.keys() | kernels.keys()):
            if name not in known:
                faults.append(f"{program}: kernel {name} is not in the table")
            elif name not in kernels:
                faults.append(f"{program}: kernel {name} is in the table only")
            else:
                for figure in FIGURES:
                    was, now = known[name][figure], kernels[name][figure]
                    if now > was:
                        faults.append(f"{program}: kernel {name} takes {now} {figure}, was {was}")
                    elif now < was:
                        print(f"{program}: kernel {name} takes {now} {figure}, down from {was}")
    return faults


def main():
    arguments = sys.argv[1:]
    update = "--update" in arguments
    path, *examples = [a for a in arguments if a != "--update"]
    path = pathlib.Path(path)
    release = ptxas_release()
    programs = {example.stem: measure(example) for example in map(pathlib.Path, examples)}
    print(f"{sum(map(len, programs.values()))} kernels of {len(programs)} programs")
    if update:
        write_table(path, release, programs)
        return 0
    known_release, expected = read_table(path)
    if release != known_release:
        print(f"not compared: ptxas {release}, the table has {known_release}")
        return 0
    faults = compare(expected, programs)
    for fault in faults:
        print(fault)
    if faults:
        print(__doc__)
    return 1 if faults else 0


sys.exit(main())
