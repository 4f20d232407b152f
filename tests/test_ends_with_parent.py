"""A process that ends with its parent, on Linux and elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import HUNG
from pipeline_helpers import environment, lives

from fgrl.base import stops

CHILD = """
import sys, time
sys.platform = {platform!r}
from fgrl.base import stops
stops.end_with_parent()
print("lives", flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys
from fgrl.base import stops
with stops.children_end_with_us(os.environ):
    child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE)
print(child.pid, child.stdout.readline(), stops.PARENT in os.environ, flush=True)
child.wait()
"""


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_process_ends_with_its_parent(platform: str) -> None:
    code = PARENT.format(child=CHILD.format(platform=platform))
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child, *said = parent.stdout.readline().split()
    assert said == ["b'lives\\n'", "False"]
    parent.kill()
    parent.communicate()
    until = time.monotonic() + HUNG
    while lives(int(child)):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_module_in_the_working_folder_takes_no_place_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`token.py` beside a recipe, which `python -m` would import in place of Python's own."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    for name in ("token", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    child = "import json, os, token; from fgrl.base import stops; stops.end_with_parent(); print('PYTHONSAFEPATH' in os.environ)"
    for command in (["-m", "fgrl", "list", "normalizer"], ["-c", child]):
        ours = environment()
        with stops.children_end_with_us(ours):
            ended = subprocess.run(
                [sys.executable, *command], env=ours, cwd=tmp_path, capture_output=True, text=True, check=False
            )
        assert ended.returncode == 0, ended.stderr
        assert stops.SAFE_PATH not in ours
    assert ended.stdout == "False\n", "what the child starts has the path of its own"


def test_a_parent_that_has_ended_already_is_noticed() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(platform="linux")],
        env={**environment(), stops.PARENT: str(gone.pid)},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL


def test_a_command_that_a_child_starts_through_others_lives() -> None:
    code = CHILD.format(platform="linux").replace("time.sleep(600)", "print(stops.has_parent())")
    middle = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    said = subprocess.run(
        [sys.executable, "-c", middle], env={**environment(), stops.PARENT: str(os.getpid())}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert said.stdout.split() == ["lives", "False"]
