"""interrupted.py SIGNAL COMMAND...: sends SIGNAL to the command while its ranks wait for
a stalled one. It must end by that signal, and leave no process and no file."""

import os
import signal
import subprocess
import sys
import tempfile
import time

number = getattr(signal, sys.argv[1])
with tempfile.TemporaryDirectory() as directory:
    environment = dict(os.environ, TMPDIR=directory,
                       SHARDQ_FAULT="rank=1,operation=0,epoch=1,action=stall")
    tool = subprocess.Popen(sys.argv[2:], env=environment, start_new_session=True)
    # The ranks are there when their meeting place has files.
    end = time.time() + 60
    while not any(files for _, _, files in os.walk(directory)):
        assert tool.poll() is None and time.time() < end, "no rank has started"
        time.sleep(0.05)
    time.sleep(1)
    tool.send_signal(number)
    assert tool.wait(timeout=30) == -number, f"ended with {tool.returncode}"
    assert not os.listdir(directory), os.listdir(directory)
    try:
        os.killpg(tool.pid, 0)
        sys.exit("a rank is still there")
    except ProcessLookupError:
        pass
