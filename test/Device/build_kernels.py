"""PTX and machine code of the kernels of cases.py, for kernels_check.py.

    python3 build_kernels.py SHARDQ_KERNELS FOLDER [CHIP ...]

Prints what each takes of a multiprocessor; the exit code is 1 where one spills
registers, has a stack frame, or makes ptxas warn.
"""

import os
import re
import subprocess
import sys

FEATURES = {"sm_80": "+ptx84", "sm_90": "+ptx84", "sm_90a": "+ptx84", "sm_100a": "+ptx86"}


def find_ptxas():
    for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        path = os.path.join(folder, "bin", "ptxas")
        if os.access(path, os.X_OK):
            return path
    return "ptxas"


def main():
    tool, folder, *chips = sys.argv[1:]
    here = os.path.dirname(os.path.abspath(__file__))
    os.makedirs(folder, exist_ok=True)
    module = os.path.join(folder, "kernels.mlir")
    with open(module, "w") as file:
        subprocess.run([sys.executable, os.path.join(here, "cases.py")], stdout=file,
                       check=True)
    failed = False
    print(f"{'kernel':<28} {'chip':<8} registers  spills   stack  dynamic shared")
    for chip in chips or ["sm_80", "sm_90a", "sm_100a"]:
        subprocess.run([tool, module, "-o", folder, f"-chip={chip}",
                        f"-features={FEATURES[chip]}"], check=True)
        for line in open(os.path.join(folder, "kernels.txt")):
            name, _, shared = line.split()[:3]
            path = os.path.join(folder, f"{name}.{chip}")
            result = subprocess.run([find_ptxas(), "-v", f"-arch={chip}", path + ".ptx", "-o",
                                     path + ".cubin"], stderr=subprocess.PIPE, text=True)
            text = result.stderr
            registers, stack, spills = (
                int((re.search(pattern, text) or [0, -1])[1])
                for pattern in (r"Used (\d+) registers", r"(\d+) bytes stack",
                                r"(\d+) bytes spill stores"))
            print(f"{name:<28} {chip:<8} {registers:9} {spills:7} {stack:7} {shared:>15}")
            if result.returncode or stack or spills or re.search(r"warning|C75\d\d", text):
                print(text)
                failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
