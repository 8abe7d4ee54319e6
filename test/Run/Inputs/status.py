"""status.py STATUS COMMAND...: runs a command and expects this exit status.

Prints all output of the command to stdout. lit's `not` takes any failure, and
the tool tells a mismatch (1) from bad input (2).
"""

import subprocess
import sys

run = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE,
                     stderr=subprocess.STDOUT, text=True)
sys.stdout.write(run.stdout)
if run.returncode != int(sys.argv[1]):
    sys.exit(f"exit status {run.returncode}, expected {sys.argv[1]}")
