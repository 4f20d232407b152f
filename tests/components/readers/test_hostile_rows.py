"""A row whose checker means harm, all the way from the file to the reward: it runs behind the walls of the sandbox or not at all."""

from __future__ import annotations

import builtins
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import train_tokenizer
from reading_helpers import Folder, read

from fgrl import rollouts
from fgrl.base.errors import Unavailable
from fgrl.components.readers.hir import Hir
from fgrl.components.readers.verinstruct import VerInstruct
from fgrl.data.rubrics.coded_set import CodedSet
from fgrl.feedback.sandbox import CheckerSandbox, detect, strength, walls
from fgrl.registry import build
from fgrl.types import Rollout

MARK = "fgrl_was_here"
HOSTILE = """
import builtins, os, socket, subprocess, sys
SECRET, WRITTEN, PORT = {secret!r}, {written!r}, {port!r}
def leave_marks():
    setattr(builtins, "fgrl_was_here", True)
    sys.modules["fgrl_was_here"] = builtins
    os.environ["fgrl_was_here"] = "1"
leave_marks()
def read(): assert open(SECRET).read()
def write(): open(WRITTEN, "a").write("x")
def home(): assert os.listdir(os.path.expanduser("~{user}"))
def connect(): socket.create_connection(("127.0.0.1", PORT), 2)
def key(): assert os.environ["API_KEY"]
def process(): subprocess.run(["true"], check=True)
def fork():
    if os.fork() == 0:
        os._exit(0)
def parent(): assert b"pytest" in open(f"/proc/{{os.getppid()}}/cmdline", "rb").read()
def check_following(instruction, response):
    done = []
    for attempt in (read, write, home, connect, key, process, fork, parent):
        try:
            attempt()
            done.append(attempt.__name__)
        except Exception:
            pass
    print(done)
    return bool(done)
"""
HONEST = "def check_following(instruction, response):\n    return response == 'a lamp'"
ENDLESS = "def check_following(instruction, response):\n    while True: pass"
QUITS = "import os\nos._exit(0)\ndef check_following(instruction, response):\n    return True"
LIES = "import sys\ndef check_following(instruction, response):\n    sys.stdout.write('{\"value\": true}')\n    raise SystemExit"

strong = pytest.mark.skipif(detect().strength != "strong", reason=f"needs a strong sandbox: {detect().lacks}")


class Target:
    """What a stranger could harm."""

    def __init__(self, folder: Path, port: int) -> None:
        self.secret, self.written = folder / "secret", folder / "written"
        self.secret.write_text("the secret", encoding="utf-8")
        self.source = HOSTILE.format(secret=str(self.secret), written=str(self.written), port=port, user="")


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setenv("API_KEY", "hunter2")
    (tmp_path / "target").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield Target(tmp_path / "target", server.getsockname()[1])
        with pytest.raises(BlockingIOError):  # nobody came
            server.accept()


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process compiles, runs or evaluates of a text that has the mark."""
    seen: list[str] = []
    real = {name: getattr(builtins, name) for name in ("compile", "exec", "eval")}
    for name in real:

        def spy(source: Any, *args: Any, _name: str = name, _real: Any = real[name], **kwargs: Any) -> Any:
            if isinstance(source, str | bytes) and MARK in str(source):
                seen.append(_name)
            return _real(source, *args, **kwargs)

        monkeypatch.setattr(builtins, name, spy)
    return seen


def assert_no_marks(target: Target) -> None:
    assert not hasattr(builtins, MARK)
    assert MARK not in sys.modules
    assert MARK not in os.environ
    assert not target.written.exists()
    assert target.secret.read_text(encoding="utf-8") == "the secret"


def reader_of(kind: type[CodedSet], sources: list[str], folder: Folder, **fields: Any) -> CodedSet:
    marks = [f"[rule] number {place}" for place in range(len(sources))]
    if kind is VerInstruct:
        row: dict[str, Any] = {"id": "1", "prompt": "p", "checkers": marks, "functions": sources}
    else:
        truth = {"checker": marks, "functions": sources, "sandbox": {"require": "weak", "seconds": 600}}
        row = {"id": 1, "prompt": "p", "criteria": marks, "source": "type4", "ground_truth": truth}
    return kind(**folder.jsonl([row | {"sandbox": {"require": "weak", "seconds": 600}}]), **fields)


def scored(reader: CodedSet, texts: list[str]) -> tuple[Any, Any]:
    """The rewards of answers to the reader's one prompt, as an RL stage asks for them."""
    (sample,), _ = read(reader)
    tokenizer = train_tokenizer()
    eos = tokenizer.eos_token_id
    ids = [[*tokenizer(text, add_special_tokens=False).input_ids, eos] for text in texts]
    tokens = rollouts.pad([[1]] * len(ids), ids, pad_id=0, eos_ids=[eos])
    rollout = Rollout(
        **vars(tokens), group=torch.zeros(len(ids), dtype=torch.long), samples=[sample] * len(ids),
        texts=texts, offsets=[rollouts.offsets(tokenizer, row) for row in ids],
    )  # fmt: skip
    reward = build("reward", {"name": "rubric"})
    reward.setup(None)
    reward.check_prompts([sample])
    return sample, reward.score(rollout)


@strong
@pytest.mark.parametrize("kind", [Hir, VerInstruct])
def test_a_hostile_checker_is_contained(
    kind: type[CodedSet], target: Target, tmp_path: Path, executed: list[str]
) -> None:
    reader = reader_of(kind, [target.source, HONEST, target.source], Folder(tmp_path))
    sample, rewards = scored(reader, ["a lamp", "a cat"])
    assert ["sandbox" in one.check for one in sample.rubric] == [False, False, False]  # the recipe's default: strong
    assert rewards.verdict.tolist() == [
        [-1, 1, -1],
        [-1, -1, -1],
    ]  # no attempt came through, and the honest one is heard
    assert rewards.response.tolist() == [pytest.approx(1 / 3), 0.0]
    assert executed == []
    assert_no_marks(target)


@strong
def test_one_that_does_not_answer_is_missing_and_the_run_goes_on(
    target: Target, tmp_path: Path, executed: list[str]
) -> None:
    sources = [ENDLESS, QUITS, LIES, HONEST, target.source]
    reader = reader_of(VerInstruct, sources, Folder(tmp_path), sandbox=CheckerSandbox(seconds=1))
    _, rewards = scored(reader, ["a lamp"])
    verdict = rewards.verdict[0]
    assert torch.isnan(verdict[:3]).all()
    assert verdict[3:].tolist() == [1, -1]
    assert float(rewards.metrics["missing_verdicts"]) == pytest.approx(3 / 5)
    assert rewards.response.tolist() == [0.5]
    assert executed == []
    assert_no_marks(target)


def test_without_a_strong_sandbox_nothing_runs(
    target: Target, tmp_path: Path, executed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strength.detect.cache_clear()
    walls.program.cache_clear()
    monkeypatch.setattr(walls.shutil, "which", lambda name: None)
    monkeypatch.setattr(walls, "packaged", lambda: None)
    try:
        with pytest.raises(Unavailable, match="apt-get install bubblewrap"):
            scored(reader_of(Hir, [target.source], Folder(tmp_path)), ["a lamp"])
    finally:
        strength.detect.cache_clear()
        walls.program.cache_clear()
    assert executed == []
    assert_no_marks(target)


def test_the_attempts_would_come_through_without_walls(target: Target, executed: list[str]) -> None:
    """So the tests above can fail: as a plain program the checker reads, writes and finds the key; and the spy hears."""
    harmless = target.source.replace("connect, ", "")
    program = f"{harmless}\ncheck_following('', '')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"read", "write", "home", "key", "process", "fork"} <= set(json.loads(done.stdout.replace("'", '"')))
    assert target.written.exists()
    exec(f"x = {MARK!r}")
    assert executed == ["exec"]
