"""Inputs that change during a run, and products that are not what the stage wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pipeline_helpers import Bench, fake_recipe, fakes
from typer.testing import CliRunner

from fgrl.base import ranks
from fgrl.base.errors import DataError, UsageError
from fgrl.cli import app
from fgrl.experiments.pipeline import Options, plan
from fgrl.experiments.stages.training import TrainingStage
from fgrl.kinds.specs import ModelSpec
from fgrl.pages import report
from fgrl.training.trainer import OnlineSettings
from fgrl.types import Ref


@pytest.fixture
def stages() -> Iterator[ModuleType]:
    with fakes() as module:
        yield module


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    def write(folder: Path) -> Path:
        (folder / "report.html").write_text("a page")
        return folder / "report.html"

    monkeypatch.setattr(report, "write", write)
    return Bench(tmp_path)


def during(patch: pytest.MonkeyPatch, stage: Any, name: str, act: Callable[[], object]) -> None:
    """Let something happen while the stage `name` works."""
    whole = stage.run

    def run(self: Any, run: Any) -> Any:
        result = whole(self, run)
        if run.stage == name:
            act()
        return result

    patch.setattr(stage, "run", run)


# -- inputs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("original")
    return path


def model_folder(folder: Path) -> Path:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    weights = folder / "model" / "weights.bin"
    weights.write_text("original")
    return weights


@pytest.mark.parametrize("kind", ["a file", "a model"])
@pytest.mark.parametrize("when", ["before", "during"])
def test_an_input_that_changes_under_way_is_refused_and_leaves_nothing(
    bench: Bench, stages: ModuleType, words: Path, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    """Hashed when the run began, edited before or while the stage reads it, and restored later."""
    path = words if kind == "a file" else model_folder(bench.folder)
    reads = {"words": str(words)} if kind == "a file" else {"model": ModelSpec(base=str(path.parent))}

    def recipe() -> dict[str, Any]:
        return {"first": stages.Counting(steps=1), "second": stages.Counting(steps=2, **reads)}

    with monkeypatch.context() as patch:
        stage = "first" if when == "before" else "second"
        during(patch, stages.Counting, stage, lambda: path.write_text("edited just now"))
        summary = bench.run(**recipe())
    assert summary.exit == 3
    said = bench.stream.getvalue()
    assert f"what stages.second.{'words' if kind == 'a file' else 'model.base'} names has changed" in said
    assert "Run the same command again" in said
    assert "Traceback" not in said
    assert not list((bench.runs / "stages").glob("second-*")), "what came from the edited file must not be gone on from"
    path.write_text("original")
    assert bench.run(**recipe()).exit == 0


def test_work_that_an_interrupt_leaves_is_of_the_planned_inputs(
    bench: Bench, stages: ModuleType, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act() -> None:
        words.write_text("edited just now")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        during(patch, stages.Counting, "first", act)
        assert bench.run(first=stages.Counting(words=str(words))).exit == 3
    assert not list((bench.runs / "stages").glob("first-*"))


def test_an_input_that_is_restored_before_its_stage_does_no_harm(
    bench: Bench, stages: ModuleType, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act() -> None:
        words.write_text("edited")
        words.write_text("original")

    during(monkeypatch, stages.Counting, "first", act)
    assert bench.run(first=stages.Counting(steps=1), second=stages.Counting(words=str(words))).exit == 0


def test_the_process_of_a_distributed_stage_finds_the_stage_that_it_was_started_for(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the recipe again, which somebody may have edited meanwhile."""
    only = Options(only=["first"])
    monkeypatch.setenv(ranks.KEY, plan(fake_recipe(bench.folder, first=stages.Counting()), bench.runs)["first"].key)
    with pytest.raises(DataError, match="has changed since this run began"):
        bench.run(_options=only, first=stages.Counting(steps=4))
    assert bench.run(_options=only, first=stages.Counting()).exit == 0


# -- products ----------------------------------------------------------------------------------------------------------


def chain(stages: ModuleType, steps: int = 3) -> dict[str, Any]:
    return {"first": stages.Counting(steps=2), "second": stages.Counting(steps=steps, source=Ref("first"))}


def product(bench: Bench, stages: ModuleType, name: str) -> Path:
    return plan(fake_recipe(bench.folder, **chain(stages)), bench.runs)[name].dir / "out" / "samples.jsonl"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {"cut": cut, "flipped": flip, "gone": Path.unlink}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_broken_product_is_made_again_before_it_is_read(bench: Bench, stages: ModuleType, how: str) -> None:
    bench.run(**chain(stages))
    path = product(bench, stages, "first")
    whole = path.read_bytes()
    DAMAGES[how](path)
    summary = bench.run(**chain(stages, steps=4))
    assert summary.exit == 0
    assert [stage.cached for stage in summary.stages.values()] == [False, False]
    assert path.read_bytes() == whole
    assert bench.product(summary, "second") == "0 1\n0 1 2 3\n"
    assert "out/samples.jsonl" in bench.stream.getvalue()


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_sizes_are_compared_at_every_look(bench: Bench, stages: ModuleType, how: str) -> None:
    bench.run(**chain(stages))
    path = product(bench, stages, "second")
    size = path.stat().st_size
    DAMAGES[how](path)
    second = plan(fake_recipe(bench.folder, **chain(stages)), bench.runs)["second"]
    assert not second.cached
    found = f"has {size // 2} bytes instead of {size}" if how == "cut" else "is gone"
    assert second.why == f"{second.dir.name}/out/samples.jsonl {found}: runs again"
    summary = bench.run(**chain(stages))
    assert [stage.cached for stage in summary.stages.values()] == [True, False]


def test_a_broken_product_of_a_stage_that_was_not_asked_for_is_refused(bench: Bench, stages: ModuleType) -> None:
    bench.run(**chain(stages))
    flip(product(bench, stages, "first"))
    only = Options(only=["second"])
    assert bench.run(_options=only, **chain(stages, steps=4)).exit == 3
    said = bench.stream.getvalue()
    assert "out/samples.jsonl has changed since it was written" in said
    assert "--only first --only second" in said
    assert "Traceback" not in said
    assert bench.run(_options=Options(only=["first", "second"]), **chain(stages, steps=4)).exit == 0


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": "0123"}', "\udcff\udcfe"])
def test_a_broken_record_is_unfinished_work_and_disturbs_no_other_recipe(
    bench: Bench, stages: ModuleType, content: str
) -> None:
    bench.run(**chain(stages))
    record = product(bench, stages, "second").parent.parent / "stage.json"
    record.write_bytes(content.encode(errors="surrogateescape"))
    second = plan(fake_recipe(bench.folder, **chain(stages)), bench.runs)["second"]
    assert (second.cached, "stage.json" in second.why) == (False, True)
    other = plan(fake_recipe(bench.folder, other=stages.Counting(steps=9)), bench.runs)["other"]
    assert not other.cached
    assert bench.run(**chain(stages)).exit == 0


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": 1}'])
def test_a_broken_summary_of_an_earlier_run_is_passed_over(bench: Bench, stages: ModuleType, content: str) -> None:
    first = bench.run(**chain(stages))
    assert first.folder is not None
    (first.folder / "summary.json").write_text(content)
    again = bench.run(**chain(stages))
    assert (again.exit, again.nothing_to_do) == (0, False)
    assert bench.run(**chain(stages)).folder == again.folder
    shutil.rmtree(again.folder)


# -- what serves to resume ---------------------------------------------------------------------------------------------


def test_what_serves_to_resume_is_removed_once_the_stage_has_finished(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages.Counting, "temporary", lambda self: ("state.txt", "never.written"))
    bench.run(first=stages.Counting())
    (folder,) = (bench.runs / "stages").glob("first-*")
    assert not (folder / "state.txt").exists()
    assert bench.run(first=stages.Counting()).nothing_to_do


@pytest.mark.parametrize(("keep", "names"), [(False, ("last.ckpt", "replaced.ckpt")), (True, ())])
def test_checkpoints_are_kept_on_request(keep: bool, names: tuple[str, ...]) -> None:
    settings = OnlineSettings(lr=1.0, batch_size=1, keep_checkpoint=keep)
    assert TrainingStage.temporary(SimpleNamespace(train=settings)) == names  # type: ignore[arg-type]


# -- fgrl doctor RUNS --------------------------------------------------------------------------------------------------


def doctored(bench: Bench) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", str(bench.runs), "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_doctor_finds_nothing_where_nothing_is_broken(bench: Bench, stages: ModuleType) -> None:
    bench.run(**chain(stages))
    bench.run(bad=stages.Failing(how="bug"))
    assert doctored(bench) == (
        0, {"stages": 3, "whole": 2, "unfinished": 1, "problems": []}
    )  # fmt: skip


def test_doctor_reads_every_byte(bench: Bench, stages: ModuleType) -> None:
    """A flipped bit in a product that nobody reads, a damaged checkpoint, a cut summary, a damaged database."""
    bench.run(**chain(stages))
    summary = bench.run(bad=stages.Failing(how="bug"))
    second = product(bench, stages, "second")
    flip(second)
    (unfinished,) = (bench.runs / "stages").glob("bad-*")
    (unfinished / "last.ckpt").write_text("cut")
    assert summary.folder is not None
    cut(summary.folder / "summary.json")
    (bench.runs / "cache" / "completions.sqlite").write_text("no database at all")
    code, found = doctored(bench)
    assert code == 1
    checkpoint, product_problem, record, database = found["problems"]
    assert f"{second.parent.parent.name}/out/samples.jsonl has changed since it was written" in product_problem
    assert "bad-" in checkpoint
    assert "last.ckpt is damaged" in checkpoint
    assert "summary.json is not JSON" in record
    assert "completions.sqlite: file is not a database: move the file away" in database
    again = bench.run(**chain(stages))
    assert [stage.cached for stage in again.stages.values()] == [True, False], "it counts as unfinished"


def test_doctor_of_a_folder_without_runs(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert isinstance(result.exception, UsageError)


def test_a_table_does_not_show_numbers_that_have_changed(bench: Bench, stages: ModuleType) -> None:
    summary = bench.run(evaluate=stages.Measuring(value=0.5))
    assert summary.folder is not None
    flip(summary.folder / "stages" / "evaluate" / "out" / "metrics.json")
    result = CliRunner().invoke(app, ["table", str(summary.folder)])
    assert isinstance(result.exception, DataError)
    assert "fgrl doctor" in str(result.exception)
