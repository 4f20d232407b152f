"""The processes of a sandbox end with the process that has started it, also in the middle of a call."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from patience import HUNG
from pipeline_helpers import environment, lives

SOON = 10.0
"""Seconds in which no process may be left."""
OWNER = """
from fgrl.feedback.sandbox import Call, SandboxSpec
from fgrl.feedback.sandbox.sandbox import Sandbox

sandbox = Sandbox(SandboxSpec(seconds=600, require="weak"), wall="plain")
worker = sandbox._started()
print(worker._process.pid, worker._folder / "folder" / "begun", flush=True)
source = '''
import os, time
def attempt():
    with open("begun", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
'''
sandbox.run(Call(source, "attempt"))
"""


def test_a_call_ends_with_its_owner() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], env=environment(), stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    runner, begun = owner.stdout.readline().split()
    until = time.monotonic() + HUNG
    while not (Path(begun).exists() and Path(begun).read_text()):
        assert time.monotonic() < until
        time.sleep(0.02)
    processes = [runner, Path(begun).read_text()]
    owner.kill()
    owner.communicate()
    until = time.monotonic() + SOON
    while left := [pid for pid in processes if lives(int(pid))]:
        assert time.monotonic() < until, f"{left} live"
        time.sleep(0.05)
