"""What ran, what may be deleted, and what a failed start leaves behind."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from filelock import FileLock
from pipeline_helpers import Bench, fakes
from typer.testing import CliRunner

from fgrl.base.errors import UsageError
from fgrl.cli import app
from fgrl.experiments.pipeline import Options
from fgrl.experiments.pipeline.invocation import Invocation
from fgrl.runs.cleaning import Deletion, Wanted, delete, deletions, parse_age
from fgrl.runs.folders import LOCK, Runs
from fgrl.runs.history import History
from fgrl.runs.results.table import headline
from fgrl.runs.stage import Stage
from fgrl.types import Ref


@pytest.fixture
def stages():
    with fakes() as module:
        yield module


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def names(folder: Path) -> set[str]:
    return {path.name.rpartition("-")[0] for path in (folder / "stages").glob("*-*")}


def chosen(bench: Bench, **wanted: object) -> list[str]:
    return [
        f"{item.what} {item.path.name.rpartition('-')[0]}"
        for item in deletions(Runs(bench.runs), Wanted(**wanted)).items
    ]  # type: ignore[arg-type]


def two_runs(bench: Bench, stages: ModuleType) -> None:
    """The first with stages `shared` and `old`, the second with `shared` and `new`."""
    shared = stages.Counting(steps=2)
    bench.run(shared=shared, old=stages.Counting(steps=3, source=Ref("shared")))
    first = next((bench.runs / "fake").iterdir())
    summary = json.loads((first / "summary.json").read_text())
    (first / "summary.json").write_text(json.dumps(summary | {"started": "2020-01-01T00:00:00Z"}))
    bench.run(shared=shared, new=stages.Counting(steps=4, source=Ref("shared")))


def test_runs_are_listed_with_state_size_and_first_number(bench: Bench, stages: ModuleType) -> None:
    bench.run(first=stages.Counting(), evaluate=stages.Measuring(value=0.5))
    bench.run(first=stages.Counting(), bad=stages.Failing(how="bug"))
    history = History(Runs(bench.runs))
    failed, finished = sorted(history.entries, key=lambda entry: entry.state)
    assert (failed.state, history.done(failed), len(failed.keys)) == ("failed", 1, 2)
    assert (finished.state, history.done(finished), finished.name) == ("finished", 2, "fake")
    shown = headline(history.used_by(finished))
    assert "0.25 -> 0.5" in shown
    size = sum(file.stat().st_size for file in bench.runs.rglob("*") if file.is_file() and ".locks" not in file.parts)
    assert history.bytes == size, "a stage that both use counts once"
    done = CliRunner().invoke(app, ["runs", str(bench.runs)])
    assert "2 runs and 3 stages" in done.output
    assert shown in done.output
    listed = json.loads(
        CliRunner().invoke(app, ["runs", str(bench.runs / "fake"), "--state", "failed", "--json"]).output
    )
    assert [run["state"] for run in listed["runs"]] == ["failed"]
    assert "ZeroDivisionError" in listed["runs"][0]["error"]


def test_a_run_that_is_under_way_is_running_and_a_killed_one_unfinished(bench: Bench, stages: ModuleType) -> None:
    summary = bench.run(first=stages.Counting())
    assert summary.folder is not None
    assert not (summary.folder / LOCK).exists()
    record = summary.folder / "summary.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"exit": None}))
    assert History(Runs(bench.runs)).entries[0].state_now == "unfinished"
    with FileLock(summary.folder / LOCK):
        assert History(Runs(bench.runs)).entries[0].state_now == "running"
        assert chosen(bench, recipes=["fake"]) == []
        assert deletions(Runs(bench.runs), Wanted(recipes=["fake"])).kept


def test_old_runs_go_with_the_stages_that_only_they_used(bench: Bench, stages: ModuleType) -> None:
    two_runs(bench, stages)
    assert [each.split()[0] for each in chosen(bench, older_than=timedelta(days=30))] == ["run", "stage"]
    runs = Runs(bench.runs)
    doomed = deletions(runs, Wanted(older_than=timedelta(days=30)))
    assert names(bench.runs) == {"shared", "old", "new"}, "nothing is deleted before it is asked for"
    assert delete(runs, doomed, pytest.fail) == doomed.bytes > 0
    assert names(bench.runs) == {"shared", "new"}
    assert len(list((bench.runs / "fake").iterdir())) == 1
    assert chosen(bench, older_than=timedelta(days=30)) == []


def test_all_runs_of_a_recipe(bench: Bench, stages: ModuleType) -> None:
    two_runs(bench, stages)
    runs = Runs(bench.runs)
    delete(runs, deletions(runs, Wanted(recipes=["fa*"])), pytest.fail)
    assert names(bench.runs) == set()
    assert not (bench.runs / "fake").exists()
    bench.run(first=stages.Counting())
    with pytest.raises(UsageError, match='did you mean "fake"'):
        deletions(runs, Wanted(recipes=["fakes"]))


def test_stages_that_no_run_refers_to(bench: Bench, stages: ModuleType) -> None:
    two_runs(bench, stages)
    assert chosen(bench, unreferenced=True) == []
    newest = max(
        (bench.runs / "fake").iterdir(), key=lambda folder: json.loads((folder / "summary.json").read_text())["started"]
    )
    delete(Runs(bench.runs), deletions(Runs(bench.runs), Wanted(older_than=timedelta(days=30))), pytest.fail)
    for file in sorted(newest.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    newest.rmdir()
    assert set(chosen(bench, unreferenced=True)) == {"stage shared", "stage new"}
    assert chosen(bench, unreferenced=True, older_than=timedelta(days=1)) == [], "they were worked on today"
    later = datetime.now(UTC) + timedelta(days=2)
    aged = deletions(Runs(bench.runs), Wanted(timedelta(days=1), unreferenced=True), later)
    assert len(aged.items) == 2


def test_what_a_remaining_run_needs_stays_also_when_it_names_only_a_part(bench: Bench, stages: ModuleType) -> None:
    """`--only` leaves the stages before out of the summary; the record of the stage still names them."""
    two_runs(bench, stages)
    for folder in (bench.runs / "fake").iterdir():
        record = json.loads((folder / "summary.json").read_text())
        record["stages"].pop("shared")
        (folder / "inputs.json").unlink()  # the record of the stage alone names it
        (folder / "summary.json").write_text(json.dumps(record))
        (folder / "stages" / "shared").unlink()
    assert "stage shared" not in chosen(bench, older_than=timedelta(days=30))
    assert chosen(bench, unreferenced=True) == []


def test_a_locked_stage_and_a_stage_that_came_into_use_stay(bench: Bench, stages: ModuleType) -> None:
    two_runs(bench, stages)
    runs = Runs(bench.runs)
    (old,) = (bench.runs / "stages").glob("old-*")
    with FileLock(runs.stage_lock(old.name.rpartition("-")[2])):
        held = deletions(runs, Wanted(older_than=timedelta(days=30)))
        assert [item.what for item in held.items] == ["run"]
        assert "being worked on" in held.kept[0]
    doomed = deletions(runs, Wanted(older_than=timedelta(days=30)))
    said: list[str] = []
    with FileLock(runs.stage_lock(old.name.rpartition("-")[2])):
        delete(runs, doomed, said.append)
    assert old.exists()
    assert "being worked on" in said[0]
    again = deletions(runs, Wanted(unreferenced=True))
    bench.run(shared=stages.Counting(steps=2), old=stages.Counting(steps=3, source=Ref("shared")))
    said.clear()
    assert delete(runs, again, said.append) == 0
    assert "used by a run that remains" in said[0]
    assert old.exists()


def test_links_are_neither_followed_nor_removed_with_what_they_lead_to(
    bench: Bench, stages: ModuleType, tmp_path: Path
) -> None:
    two_runs(bench, stages)
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "weights.safetensors").write_text("years of work")
    (old,) = (bench.runs / "stages").glob("old-*")
    (old / "out" / "elsewhere").symlink_to(outside, target_is_directory=True)
    linked = bench.runs / "stages" / "linked-0123456789abcdef"
    linked.symlink_to(outside, target_is_directory=True)
    (bench.runs / "fake" / "20200101T000000Z-01234567").symlink_to(outside, target_is_directory=True)
    runs = Runs(bench.runs)
    delete(runs, deletions(runs, Wanted(older_than=timedelta(days=30))), pytest.fail)
    delete(runs, deletions(runs, Wanted(unreferenced=True)), pytest.fail)
    assert not old.exists()
    assert linked.is_symlink()
    assert (outside / "weights.safetensors").read_text() == "years of work"
    doomed = deletions(runs, Wanted(recipes=["fake"]))
    stage = next(item.path for item in doomed.items if item.what == "stage")
    stage.rename(outside / "moved")
    stage.symlink_to(outside / "moved", target_is_directory=True)  # between the list and the deletion
    said: list[str] = []
    delete(runs, doomed, said.append)
    assert any("is a link" in text for text in said)
    assert (outside / "moved" / "out").is_dir()
    assert (outside / "moved" / "stage.json").is_file(), "it is still finished"


def test_stages_on_another_disk_stay_finished(bench: Bench, stages: ModuleType, tmp_path: Path) -> None:
    two_runs(bench, stages)
    (bench.runs / "stages").rename(tmp_path / "big")
    (bench.runs / "stages").symlink_to(tmp_path / "big", target_is_directory=True)
    runs = Runs(bench.runs)
    doomed = deletions(runs, Wanted(older_than=timedelta(days=30)))
    assert [item.what for item in doomed.items] == ["run"]
    assert "behind a link" in doomed.kept[0]
    (old,) = (tmp_path / "big").glob("old-*")
    doomed.items.append(Deletion(bench.runs / "stages" / old.name, "stage", 1, ""))
    said: list[str] = []
    delete(runs, doomed, said.append)
    assert "behind one" in said[0]
    assert (old / "stage.json").is_file()


def age(run: Path) -> None:
    """Let a run have started years ago."""
    record = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(record | {"started": "2020-01-01T00:00:00Z"}))


def under_way(run: Path, *entered: str) -> None:
    """Let the summary of a run be what it is while it works: with only those of its stages that it has come to."""
    record = json.loads((run / "summary.json").read_text())
    for name in set(record["stages"]) - set(entered):
        record["stages"].pop(name)
        (run / "stages" / name).unlink()
    (run / "summary.json").write_text(json.dumps(record | {"exit": None}))


@pytest.mark.parametrize("only", [True, False], ids=["one stage", "all stages"])
def test_what_a_run_will_read_stays_before_it_comes_to_it(bench: Bench, stages: ModuleType, only: bool) -> None:
    """The run has come to `policy`, which reads `sft`; where it runs all stages, it will take `later` from the cache."""
    sft, later = stages.Counting(steps=2), stages.Counting(steps=5)
    first = bench.run(sft=sft, later=later, unused=stages.Counting(steps=7))
    assert first.folder is not None
    age(first.folder)
    policy = stages.Counting(steps=3, source=Ref("sft"))
    second = bench.run(_options=Options(only=["policy"] if only else []), sft=sft, policy=policy, later=later)
    assert second.folder is not None
    under_way(second.folder, "policy")
    (unfinished,) = (bench.runs / "stages").glob("policy-*/stage.json")
    unfinished.unlink()
    runs = Runs(bench.runs)
    doomed = deletions(runs, Wanted(older_than=timedelta(days=30)))
    delete(runs, doomed, pytest.fail)
    delete(runs, deletions(runs, Wanted(unreferenced=True)), pytest.fail)
    assert names(bench.runs) == {"sft", "policy"} | (set() if only else {"later"})


def test_a_run_that_begins_while_stages_are_deleted_keeps_its_own(bench: Bench, stages: ModuleType) -> None:
    two_runs(bench, stages)
    runs = Runs(bench.runs)
    doomed = deletions(runs, Wanted(recipes=["fake"]))
    said: list[str] = []
    again = [each for each in doomed.items if each.what == "stage"][-1].path.name.partition("-")[0]
    begun: list[str] = []

    reject = Stage.reject

    def begins(stage: Stage) -> None:
        reject(stage)
        if not begun:  # the first stage is being deleted
            begun.append(stage.name)
            folder = runs.new_invocation("late", "01234567")
            key = next(item.path.name for item in doomed.items if item.path.name.startswith(f"{again}-"))
            (folder / "inputs.json").write_text(json.dumps({"keys": {again: key.rpartition("-")[2]}}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "reject", begins)
        delete(runs, doomed, said.append)
    assert any("used by a run that remains" in text for text in said)
    assert again in names(bench.runs)


def test_the_base_of_an_adapter_that_was_named_by_its_path_stays(bench: Bench, stages: ModuleType) -> None:
    base, adapter = bench.run(sft=stages.Counting(steps=2)), bench.run(policy=stages.Counting(steps=3))
    assert base.folder is not None
    assert adapter.folder is not None
    (product,) = (bench.runs / "stages").glob("policy-*/out")
    where = os.path.realpath(base.folder / "stages" / "sft" / "out")
    about = {"model": {"base": {"name": where, "local": True, "packaged": None, "relative": None}}}
    (product / "fgrl.json").write_text(json.dumps(about))
    age(base.folder)
    runs = Runs(bench.runs)
    delete(runs, deletions(runs, Wanted(older_than=timedelta(days=30))), pytest.fail)
    assert not base.folder.exists()
    assert chosen(bench, unreferenced=True) == []
    about["model"]["base"] |= {"name": "/moved/elsewhere", "relative": os.path.relpath(where, product)}
    (product / "fgrl.json").write_text(json.dumps(about))
    assert chosen(bench, unreferenced=True) == []
    about["model"]["base"] |= {"name": "owner/name", "local": False}
    (product / "fgrl.json").write_text(json.dumps(about))
    assert chosen(bench, unreferenced=True) == ["stage sft"]


def test_a_stage_whose_files_a_running_run_names_by_path_stays(bench: Bench, stages: ModuleType) -> None:
    first = bench.run(sft=stages.Counting(steps=2))
    assert first.folder is not None
    words = first.folder / "stages" / "sft" / "out" / "samples.jsonl"
    second = bench.run(policy=stages.Counting(steps=3, words=str(words)))
    assert second.folder is not None
    under_way(second.folder, "policy")
    age(first.folder)
    runs = Runs(bench.runs)
    delete(runs, deletions(runs, Wanted(older_than=timedelta(days=30))), pytest.fail)
    assert not first.folder.exists()
    assert chosen(bench, unreferenced=True) == []


def test_a_path_names_the_stage_in_whose_folder_it_lies(bench: Bench, stages: ModuleType) -> None:
    summary = bench.run(sft=stages.Counting(steps=2))
    assert summary.folder is not None
    key = summary.stages["sft"].key
    runs = Runs(bench.runs)
    assert runs.key_in(str(summary.folder / "stages" / "sft" / "out")) == key
    assert runs.key_in(str(bench.runs / "stages" / f"sft-{key}" / "out" / "samples.jsonl")) == key
    for text in ("owner/name", "sft", str(bench.runs / "stages"), "a/b\nc", "x/" * 5000, "a/\0"):
        assert runs.key_in(text) is None


def test_copies_of_data_files_go_when_nothing_runs(bench: Bench, stages: ModuleType) -> None:
    bench.run(first=stages.Counting(steps=2))
    runs = Runs(bench.runs)
    answers, copied = runs.cache / "answers.sqlite", runs.cache / "inputs" / "0123456789abcdef-rows.jsonl"
    copied.parent.mkdir(parents=True)
    for file in (answers, copied):
        file.write_text("12345")
    (folder,) = (bench.runs / "fake").iterdir()
    found = deletions(runs, Wanted(unreferenced=True))
    assert [(item.path, item.bytes) for item in found.items] == [(copied, 5)]
    assert chosen(bench, unreferenced=True, recipes=["fake"]) == [] == chosen(bench, checkpoints=True)
    with FileLock(folder / LOCK):
        assert chosen(bench, unreferenced=True) == [], "a run reads them"
        said: list[str] = []
        assert delete(runs, found, said.append) == 0, "the run began after they were listed"
        assert copied.exists()
        assert copied.name in said[0]
    assert delete(runs, found, pytest.fail) == 5
    assert answers.exists()
    assert not copied.exists()


@pytest.mark.parametrize("what", ["checkpoints", "unreferenced"])
def test_a_recipe_beside_checkpoints_or_unreferenced_selects_no_runs(
    bench: Bench, stages: ModuleType, what: str
) -> None:
    two_runs(bench, stages)
    lost = bench.run(lost=stages.Counting(steps=8))
    assert lost.folder is not None
    shutil.rmtree(lost.folder)
    for folder in (bench.runs / "stages").glob("*-*"):
        (folder / "last.ckpt").write_text("12345")
        if folder.name.startswith(("new", "lost")):
            record = json.loads((folder / "stage.json").read_text())
            (folder / "stage.json").write_text(json.dumps(record | {"recipe": "other"}))
    wanted = {what: True}
    assert {item.what for item in deletions(Runs(bench.runs), Wanted(recipes=["fake"], **wanted)).items} <= {
        "checkpoint"
    }
    expected = {"checkpoints": ["checkpoint", "checkpoint"], "unreferenced": ["stage"]}[what]
    assert [item.what for item in deletions(Runs(bench.runs), Wanted(recipes=["other"], **wanted)).items] == expected
    done = CliRunner().invoke(app, ["clean", str(bench.runs / "fake"), f"--{what}", "--yes"])
    assert done.exit_code == 0, done.output
    assert len(list((bench.runs / "fake").iterdir())) == 2
    assert names(bench.runs) == {"shared", "old", "new", "lost"}


def test_the_checkpoint_of_a_stage_that_is_unfinished_again_stays(bench: Bench, stages: ModuleType) -> None:
    bench.run(first=stages.Counting())
    (folder,) = (bench.runs / "stages").glob("first-*")
    (folder / "last.ckpt").write_text("12345")
    runs = Runs(bench.runs)
    doomed = deletions(runs, Wanted(checkpoints=True))
    Stage(folder).reject()
    said: list[str] = []
    assert delete(runs, doomed, said.append) == 0
    assert "not finished any more" in said[0]
    assert (folder / "last.ckpt").exists()


def test_checkpoints_of_finished_stages(bench: Bench, stages: ModuleType) -> None:
    bench.run(first=stages.Counting(), bad=stages.Failing(how="bug"))
    for folder in (bench.runs / "stages").glob("*-*"):
        (folder / "last.ckpt").write_text("12345")
    runs = Runs(bench.runs)
    doomed = deletions(runs, Wanted(checkpoints=True))
    assert [(item.what, item.bytes, item.path.parent.name[:5]) for item in doomed.items] == [("checkpoint", 5, "first")]
    assert delete(runs, doomed, pytest.fail) == 5
    assert [path.parent.name[:3] for path in (bench.runs / "stages").glob("*/last.ckpt")] == ["bad"]


def test_the_command_deletes_only_when_it_is_allowed_to(bench: Bench, stages: ModuleType) -> None:
    two_runs(bench, stages)
    words = ["clean", str(bench.runs), "--older-than", "30d"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "2 to delete" in shown.output
    assert "give --yes" in shown.output
    assert not json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["deleted"]
    assert names(bench.runs) == {"shared", "old", "new"}
    assert "deleted: " in CliRunner().invoke(app, [*words, "--yes"]).output
    assert names(bench.runs) == {"shared", "new"}
    assert "nothing to delete" in CliRunner().invoke(app, words).output
    with pytest.raises(UsageError, match="nothing was selected"):
        CliRunner().invoke(app, ["clean", str(bench.runs)], catch_exceptions=False)
    assert "30d" in CliRunner().invoke(app, ["clean", str(bench.runs), "--older-than", "a month"]).output


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("12h", 43200), ("30d", 2592000), ("2w", 1209600)])
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "30 days"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ValueError, match="30d"):
        parse_age(text)


def everything(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts
    }


@pytest.mark.parametrize("how", ["data", "interrupt", "usage"])
def test_a_failed_start_leaves_nothing_behind(bench: Bench, stages: ModuleType, how: str) -> None:
    if how == "usage":
        with pytest.raises(UsageError):
            bench.run(bad=stages.Failing(how=how))
    else:
        summary = bench.run(bad=stages.Failing(how=how))
        assert summary.exit == {"data": 3, "interrupt": 130}[how]
        assert (summary.folder, summary.report) == (None, None)
    assert everything(bench.runs) == set()
    assert not (bench.runs / "fake").exists()


@pytest.mark.parametrize("how", ["working", "finished"])
def test_a_failed_start_leaves_a_stage_that_another_process_took_over(
    bench: Bench, stages: ModuleType, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The other process had waited for the stage's lock, and has it before the folder is removed."""
    remove, locks = Invocation.remove, []

    def later(invocation: Invocation) -> None:
        (folder,) = (bench.runs / "stages").glob("bad-*")
        if how == "working":
            locks.append(FileLock(Runs(bench.runs).stage_lock(folder.name.rpartition("-")[2])))
            locks[0].acquire(timeout=0)
        else:
            (folder / "stage.json").write_text("{}")
        remove(invocation)

    monkeypatch.setattr(Invocation, "remove", later)
    assert bench.run(bad=stages.Failing(how="data")).folder is None
    assert names(bench.runs) == {"bad"}
    assert not (bench.runs / "fake").exists()


def test_what_was_done_before_a_failure_stays(bench: Bench, stages: ModuleType) -> None:
    bench.run(first=stages.Counting(), bad=stages.Failing(how="data"))
    assert names(bench.runs) == {"first"} | {"bad"}
    assert len(list((bench.runs / "fake").iterdir())) == 1
    before = everything(bench.runs)
    bench.run(first=stages.Counting(), worse=stages.Failing(how="data", devices=1), other=stages.Counting(steps=9))
    assert {name for name in everything(bench.runs) - before if "worse" in name} == set(), (
        "only cached stages: a failed start"
    )


def test_a_bug_keeps_its_log(bench: Bench, stages: ModuleType) -> None:
    summary = bench.run(bad=stages.Failing(how="bug"))
    assert summary.folder is not None
    assert (summary.folder / "run.log").exists()
    assert names(bench.runs) == {"bad"}
