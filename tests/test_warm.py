"""Processes that find libraries loaded are otherwise those that Python starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from patience import HUNG

from fgrl.base import stops
from fgrl.experiments.pipeline import libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

TELLS = """
import os, sys
print(sys.argv, sys.path, __name__, os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read(), os.environ.get("SPY"))
print(sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.encoding, os.getppid())
sys.exit({end})
"""
PARENT = """
import os, subprocess, sys
code = "import os, sys; print(os.getppid(), sys.modules.keys() >= {'numpy'}, flush=True); sys.exit(7)"
child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "RANK": "1"}, start_new_session=True)
print(child.wait(), os.getpid())
"""


@pytest.fixture(autouse=True)
def _originals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With a library that is quick to load."""
    monkeypatch.setattr(warm, "LIBRARIES", ("numpy",))
    monkeypatch.setattr(warm, "nurseries", [])
    with warm.processes(os.environ):
        yield


def python(*words: str, **more: Any) -> tuple[int, list[str], str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=HUNG, check=False, **more)
    return done.returncode, done.stdout.splitlines(), done.stderr.strip().rpartition("\n")[2]


def has_numpy(**more: Any) -> bool:
    return python("-c", "import sys; print('numpy' in sys.modules)", **more)[1] == ["True"]


@pytest.mark.parametrize("end", ["5", "'a message'", "1 / 0", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("how", ["code", "file", "module"])
def test_they_find_and_leave_the_same(tmp_path: Path, how: str, end: str) -> None:
    file = tmp_path / "tells.py"
    file.write_text(TELLS.format(end=end))
    start = {"code": ["-c", file.read_text()], "file": [str(file)], "module": ["-m", "tells"]}[how]
    options: dict[str, Any] = {
        "cwd": tmp_path,
        "input": "given",
        "start_new_session": True,
        "env": {**os.environ, "SPY": "x"},
    }
    copied = python(*start, "-v", "b c", **options)
    with warm.as_usual():
        assert copied == python(*start, "-v", "b c", **options)
    assert how == "code" or copied[0] < 0 or str(tmp_path) in copied[1][0]


def test_they_have_the_library_and_so_have_their_children_whose_parents_they_are() -> None:
    assert has_numpy()
    code, (told, last), _ = python("-c", PARENT)
    assert code == 0
    child_code, pid = last.split()
    assert (child_code, told) == ("7", f"{pid} True")


def test_they_are_children_of_this_process_and_get_its_signals() -> None:
    code = "import os, time; print(os.getppid(), flush=True); time.sleep(1000)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert child.stdout is not None
        assert int(child.stdout.readline()) == os.getpid()
        os.killpg(child.pid, number)
        assert child.wait(HUNG) == -number
        child.stdout.close()


def test_two_that_follow_each_other_order_sets_differently() -> None:
    hashes = [python("-c", "print(hash('x'))")[1] for _ in range(4)]
    assert hashes[0] == hashes[2] != hashes[1] == hashes[3]


def test_fgrl_finds_libraries_that_were_imported_as_it_does_it() -> None:
    assert libraries.QUIET.items() <= warm.SET_FIRST.items()
    assert has_numpy(env={**os.environ, **warm.SET_FIRST})
    assert not has_numpy(env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "0"})


def test_what_a_copy_could_not_have_starts_as_usual() -> None:
    assert has_numpy(env={**os.environ, "FGRL_STAGE_KEY": "1"})
    assert has_numpy(env={**os.environ, stops.SAFE_PATH: stops.OURS}), "as the ranks of a stage are started"
    assert has_numpy(env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": "/"}), "which torch sets in the process of the tests"
    assert not has_numpy(env={**os.environ, "OMP_NUM_THREADS": "7"})
    assert not has_numpy(preexec_fn=lambda: None)
    assert python("-I", "-c", "import sys; print('numpy' in sys.modules)")[1] == ["False"]
    with warm.as_usual():
        assert not has_numpy()
