"""The run that a stage is given: its log survives kills, its progress is readable without a terminal."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import random
import sys
from pathlib import Path

import pytest

from fgrl.base.console import Console, Ticking, drawn, duration, phase, shown
from fgrl.experiments.pipeline import libraries
from fgrl.experiments.pipeline.log import Log, read_log
from fgrl.experiments.pipeline.run import Run
from fgrl.types import Checkpoint, Ref


def make(folder: Path, **more: object) -> Run:
    folder.mkdir(exist_ok=True)
    return Run("policy", folder, cache=folder / "cache", **more)  # type: ignore[arg-type]


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_log_writes_the_same_rows_as_json_and_csv(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.log({"loss": 1.5}, step=0)
    run.log({"loss": 1.25, "kl": 0.5}, step=1)
    rows = read_log(tmp_path / "log.jsonl")
    assert [(row["step"], row["loss"], row.get("kl")) for row in rows] == [(0, 1.5, None), (1, 1.25, 0.5)]
    assert [(row["step"], row["loss"], row["kl"]) for row in table(tmp_path)] == [
        ("0", "1.5", ""),
        ("1", "1.25", "0.5"),
    ]


def test_numbers_that_are_not_finite_are_valid_json_and_named_in_the_csv(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.log({"loss": math.nan, "kl": math.inf}, step=0)

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    row = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=refuse)
    assert row["loss"] is None
    assert row["kl"] is None
    assert (table(tmp_path)[0]["loss"], table(tmp_path)[0]["kl"]) == ("nan", "inf")


def test_a_killed_process_leaves_no_double_rows(tmp_path: Path) -> None:
    first = make(tmp_path)
    for step in range(5):
        first.log({"loss": float(step)}, step)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # killed while writing
    again = make(tmp_path)
    again.log({"loss": 30.0}, step=3)  # goes on from a checkpoint after step 2
    again.log({"loss": 40.0}, step=4)
    assert [(row["step"], row["loss"]) for row in read_log(tmp_path / "log.jsonl")] == [
        (0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]  # fmt: skip
    assert [row["loss"] for row in table(tmp_path)] == ["0.0", "1.0", "2.0", "30.0", "40.0"]


def test_a_killed_process_leaves_the_other_row_of_a_step(tmp_path: Path) -> None:
    """An evaluation and a training log at the same step; only the training is repeated."""
    first = make(tmp_path)
    for metrics in ({"held_out/rubric.csr": 0.25}, {"loss": 1.0}):
        first.log(metrics, step=4)
    first.log({"loss": 9.0}, step=5)
    make(tmp_path).log({"loss": 2.0}, step=4)
    rows = [{name: value for name, value in row.items() if name != "time"} for row in read_log(tmp_path / "log.jsonl")]
    assert rows == [{"step": 4, "held_out/rubric.csr": 0.25}, {"step": 4, "loss": 2.0}]
    assert [row["held_out/rubric.csr"] for row in table(tmp_path)] == ["0.25", ""]


def test_rewind_can_be_asked_for(tmp_path: Path) -> None:
    run = make(tmp_path)
    for step in range(4):
        run.log({"loss": float(step)}, step)
    Log(run.dir).rewind(2, {"loss"})
    assert [row["step"] for row in read_log(tmp_path / "log.jsonl")] == [0, 1]
    assert [row["step"] for row in table(tmp_path)] == ["0", "1"]


def test_a_broken_line_in_the_middle_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 0}\nhello\n{"step": 1}\n')
    with pytest.raises(ValueError, match=r"log\.jsonl:2"):
        Log(tmp_path).append({"loss": 0.0}, 2)


def test_workers_of_a_distributed_stage_write_and_say_nothing(tmp_path: Path) -> None:
    stream = io.StringIO()
    run = make(tmp_path, rank=1, console=Console(stream=stream))
    run.log({"loss": 1.0}, step=0)
    run.say("hello")
    assert list(tmp_path.iterdir()) == []
    assert stream.getvalue() == ""


def test_asking_whether_to_leave_is_remembered(tmp_path: Path) -> None:
    asked = False
    run = make(tmp_path, interrupted=lambda: asked)
    assert not run.interrupted
    assert not run.noticed
    asked = True
    assert not run.noticed, "nobody asked since"
    with pytest.raises(KeyboardInterrupt):
        run.stop_if_interrupted()
    assert run.noticed


def test_products_of_other_stages(tmp_path: Path) -> None:
    run = make(tmp_path, products={"reward_model": tmp_path / "rm"})
    reference: Ref[Checkpoint] = Ref("reward_model")
    assert run.path(reference) == tmp_path / "rm"
    with pytest.raises(KeyError, match="reward_model"):
        run.path(Ref("calibrate"))


def test_seeding_makes_draws_independent_of_what_ran_before(tmp_path: Path) -> None:
    import numpy
    import torch

    def draws() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), float(torch.rand(()))

    run = make(tmp_path, seed=7)
    run.seed_libraries()
    first = draws()
    draws()
    run.seed_libraries()
    assert draws() == first
    make(tmp_path, seed=8).seed_libraries()
    assert all(a != b for a, b in zip(draws(), first, strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (8.26, "8.3s"), (59.4, "59s"), (59.6, "1:00"), (125, "2:05"), (3725, "1:02:05")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_pace_counts_only_the_steps_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("fgrl.base.console.time.monotonic", lambda: clock[0])
    ticker = Ticking("train", 100, 90, lambda _: None)
    assert ticker.pace == ""
    clock[0] += 10
    ticker.advance(5, reward=0.25)
    assert ticker.line() == "train  95/100  2.0s each  ETA 10s  reward 0.25"


def test_plain_progress_is_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("fgrl.base.console.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    console = Console(stream=stream)
    console.prefix = "[2/6] policy · "
    with console.progress("training", 100) as ticker:
        for _ in range(100):
            clock[0] += 0.2
            ticker.advance(1, kl=0.5)
    lines = stream.getvalue().splitlines()
    assert 3 <= len(lines) <= 6, lines
    assert lines[0].startswith("[2/6] policy · training  25/100  5.0/s  ETA 15s  kl 0.5")
    assert lines[-1].startswith("[2/6] policy · training  100/100")


def test_short_progress_is_silent_and_quiet_says_only_alerts() -> None:
    stream, log = io.StringIO(), io.StringIO()
    console = Console(stream=stream, quiet=True)
    console.log = log
    with console.progress("scoring", 2) as ticker:
        ticker.advance(2)
    console.say("a line")
    console.alert("an alert")
    assert stream.getvalue() == "an alert\n"
    assert [line[9:] for line in log.getvalue().splitlines()] == ["a line", "an alert"]


@pytest.mark.parametrize("verbose", [False, True])
def test_a_library_s_own_handler_does_not_reach_stdout(
    verbose: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """stdout is for results; a library that comes with a handler on it (DeepSpeed) is heard where the others are."""
    logger = logging.getLogger("DeepSpeed")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(sys.stdout)])
    monkeypatch.setattr(logger, "propagate", False)
    with libraries.diverted(tmp_path / "run.log", verbose=verbose):
        logger.warning("no accelerator")
    assert "no accelerator" not in capsys.readouterr().out
    if not verbose:
        assert "DeepSpeed: no accelerator" in (tmp_path / "run.log").read_text()


def test_the_last_progress_line_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("fgrl.base.console.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    with Console(stream=stream).progress("responses", 96) as ticker:
        for _ in range(2):
            clock[0] += 6
            ticker.advance(48)
    lines = stream.getvalue().splitlines()
    assert lines == ["responses  48/96  8.0/s  ETA 6.0s", "responses  96/96  8.0/s  in 12s"]


def test_a_stage_of_one_batch_has_an_eta(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("fgrl.base.console.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    console = Console(stream=stream)
    drawn(0.5, 96)  # no line is open: nothing happens
    with console.progress("responses", 96) as ticker:
        clock[0] += 6
        drawn(0.25, 96)
        assert ticker.line() == "responses  0/96  drawing 25%  4.0/s  ETA 18s"
        ticker.advance(96)
    with console.progress("iterations", 10) as ticker:
        clock[0] += 6
        drawn(0.25, 96)
        assert ticker.line() == "iterations  0/10  drawing 25%", "an iteration is more than its responses"
    assert stream.getvalue().splitlines()[0] == "responses  0/96  drawing 25%  4.0/s  ETA 18s"


@pytest.mark.parametrize(
    ("value", "text"),
    [(-2.031192259274503, "-2.03"), (3.0, "3"), (1234567, "1,234,567"), (math.nan, "nan"), (True, "yes"), ("hf", "hf")],
)
def test_numbers_are_rounded_for_people(value: float | str, text: str) -> None:
    assert shown(value) == text


def test_what_happens_is_said_again_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("fgrl.base.console.time.monotonic", lambda: clock[0])
    stream, log = io.StringIO(), io.StringIO()
    console = Console(stream=stream)
    console.log = log

    def beats(seconds: int) -> list[str]:
        before = len(stream.getvalue())
        for _ in range(seconds):
            clock[0] += 1
            console.beat()
        return stream.getvalue()[before:].splitlines()

    assert beats(20) == [], "nothing runs"
    console.prefix = "[2/6] policy · "
    console.enter("loading")
    assert beats(11) == ["[2/6] policy · loading  1.0s", "[2/6] policy · loading  5.0s", "[2/6] policy · loading  9.0s"]
    with console.progress("iterations", 4) as ticker:
        clock[0] += 1
        ticker.advance(1, reward=0.5)
        phase("scoring")
        assert beats(5)[-1].startswith("[2/6] policy · iterations  1/4  scoring ")
        phase("training")
        assert beats(5)[-1].startswith("[2/6] policy · iterations  1/4  training ")
        ticker.advance(1)
        assert "training" not in ticker.line(), "a step ends its phase"
    assert beats(5)[-1].startswith("[2/6] policy · working  ")
    beats(70)
    times = [line for line in log.getvalue().splitlines() if "working" in line]
    assert len(times) == 2, "in the file every 30 seconds"


def test_the_live_table_has_the_last_numbers() -> None:
    from rich.console import Console as RichConsole

    terminal = io.StringIO()
    console = Console(stream=terminal)
    console.live = True
    console._rich = RichConsole(file=terminal, force_terminal=True, width=100)
    with console.progress("iterations", 9) as ticker:
        for step in range(8):
            ticker.advance(1, reward=step / 10, kl=0.25)
        assert console._bars is not None
        console._bars.refresh()
    shown = terminal.getvalue()
    assert "reward" in shown
    assert "0.7" in shown
    assert [step for step, _numbers in ticker.rows] == [3, 4, 5, 6, 7, 8]


def test_a_log_file_gets_a_line_every_30_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("fgrl.base.console.time.monotonic", lambda: clock[0])
    with (tmp_path / "log").open("w+") as file:
        console = Console(stream=file)
        console.enter("loading")
        for _ in range(65):
            clock[0] += 1
            console.beat()
        with console.progress("iterations", 100) as ticker:
            for _ in range(65):
                clock[0] += 1
                ticker.advance(1)
        file.seek(0)
        lines = file.read().splitlines()
    assert lines[:2] == ["loading  30s", "loading  1:00"]
    assert [line.split("  ")[1] for line in lines[2:]] == ["25/100", "55/100", "65/100"]
