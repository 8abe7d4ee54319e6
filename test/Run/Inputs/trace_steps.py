"""trace_steps.py SHARDQ_RUN MODULE STEPS DIRECTORY: splits all trace steps.

The module returns the split's rank offsets and the gate. Each step has 8,192
tokens, opens the gate, and no rank owns more than the bound of the buffers.
"""

import glob
import json
import os
import subprocess
import sys

import numpy as np

tool, module, steps, directory = sys.argv[1:]
paths = sorted(glob.glob(os.path.join(steps, "trace-*.json")))
assert len(paths) == 10, paths
for path in paths:
    output = os.path.join(directory, os.path.basename(path))
    subprocess.run([tool, module, f"--step={path}", f"--output-dir={output}"],
                   check=True)
    offsets, gate = (np.load(f"{output}/result{i}.npy") for i in (0, 1))
    with open(path) as file:
        requests = len(json.load(file)["query_lens"])
    ranks = len(offsets) - 1
    assert gate and offsets[0] == 0 and offsets[ranks] == 8192, (path, offsets)
    assert max(np.diff(offsets)) <= 8192 // ranks + 2 * requests, (path, offsets)
    print(f"{os.path.basename(path)}: {ranks} ranks, at most {max(np.diff(offsets))} rows")
