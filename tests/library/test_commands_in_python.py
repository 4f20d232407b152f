"""Every command of the command line has its call in Python, on the page about Python, and does the same there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from scratch_registry import scratch

import fgrl
from fgrl.base.errors import UsageError
from fgrl.cli import app
from fgrl.commands import annotating
from fgrl.library.sweeps import of_command

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "python.md"
ROW = re.compile(r"^\| `fgrl ([a-z ]+)` \| `fgrl\.(\w+)", re.MULTILINE)
WITHOUT = {"annotate serve", "launch"}
"""Commands alone: the page for annotators is served until somebody stops it, and a job runs commands."""


def test_each_command_has_its_call_on_the_page() -> None:
    rows = dict(ROW.findall(PAGE.read_text(encoding="utf-8")))
    names = [
        f"{before}{one.name or getattr(one.callback, '__name__', '')}"
        for before, each in (("", app), ("annotate ", annotating.app))
        for one in each.registered_commands
    ]
    assert len(names) > 20
    assert set(rows) == set(names) - WITHOUT
    assert all(callable(getattr(fgrl, call)) for call in rows.values())


RECIPE = """
about: "Texts about topics."
stages:
  texts:
    name: sample
    prompts: {{name: lines, path: topics.txt, limit: 2}}
    model: {base}
    sampling: {{max_new_tokens: 4}}
"""


@pytest.fixture
def world(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("topics.txt").write_text("the sea\na lamp\na bird\n")
    Path("texts.yaml").write_text(RECIPE.format(base=tiny_model_dir))
    with scratch():
        yield tmp_path


def test_a_first_recipe_is_written_and_its_rows_are_shown(world: Path, tiny_model_dir: Path) -> None:
    rows = [{"prompt": f"What is {number}?", "response": f"The number {number}."} for number in range(30)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = fgrl.init("sft", "rows.jsonl", str(tiny_model_dir), "sft.yaml", gpu=False)
    assert (made.files, made.stages, made.shows_rows) == ([Path("sft.yaml")], ["sft", "evaluate"], True)
    assert made.assumptions
    with pytest.raises(UsageError, match="already there"):
        fgrl.init("sft", "rows.jsonl", str(tiny_model_dir), "sft.yaml")
    seen = []
    shown = fgrl.inspect("sft.yaml", count=2, progress=False, show=seen.append)
    assert shown.stage == "sft"
    assert seen == shown.samples
    assert len(seen) == 2


def test_a_sweep_runs_its_points_once(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGRL_WANDB", "of-commands")
    monkeypatch.setenv("WANDB_MODE", "offline")
    Path("sweep.yaml").write_text(
        'command: ["${program}", run, texts.yaml, --limit, "1", "${args_no_hyphens}"]\nprogram: fgrl\nmethod: grid\n'
        "parameters: {seed: {values: [0, 1]}}\n"
    )
    done = fgrl.sweep("sweep.yaml", progress=False)
    assert [point.state for point in done.record.points] == ["finished", "finished"]
    assert done.index.is_file()
    assert not list(world.rglob("*.wandb")), "the call names no project"
    again = fgrl.sweep("sweep.yaml", progress=False)
    assert [point.seconds for point in again.record.points] == [point.seconds for point in done.record.points]
    (written,) = fgrl.report(done.folder)
    assert (written.report, written.conclusions) == (done.index, None)


def test_options_of_the_command_of_a_sweep_file() -> None:
    options, texts = of_command(["R.yaml", "--limit", "3", "a.b=1", "--c.d=2", "-q", "--set", "e=5", "--wandb", "w"])
    assert (options["recipe"], options["limit"], options["wandb"], texts) == (
        "R.yaml",
        3,
        "w",
        ["a.b=1", "c.d=2", "e=5"],
    )
    for wrong in (["R.yaml", "--limit", "many"], ["R.yaml", "more"], ["R.yaml", "--nothing"]):
        with pytest.raises(UsageError, match="command: "):
            of_command(wrong)


def test_pages_are_written_and_runs_are_deleted(world: Path) -> None:
    run = fgrl.run("texts.yaml", progress=False, page=False)
    (written,) = fgrl.report("texts.yaml")
    assert (written.folder.resolve(), written.report.name) == (run.folder.resolve(), "report.html")
    assert written.report.is_file()
    with pytest.raises(UsageError, match="nothing was selected"):
        fgrl.clean()
    chosen = fgrl.clean(recipes=["texts"])
    assert chosen.freed is None
    assert run.folder.is_dir()
    asked = []
    fgrl.clean(recipes=["texts"], delete=lambda found: bool(asked.append(found)))
    assert run.folder.is_dir(), "the function said no"
    assert len(asked) == 1
    assert fgrl.clean(recipes=["texts"], delete=True).freed
    assert not run.folder.exists()


def test_the_catalogue_and_the_schema() -> None:
    assert {"name": "entropy"}.items() <= {"name": fgrl.describe("segmenter", "entropy")["name"]}.items()
    assert "entropy" in [each["name"] for each in fgrl.catalog("segmenter")["segmenter"]]
    assert fgrl.schema()["type"] == "object"
    assert fgrl.doctor()["problems"] is not None


def test_runs_are_listed_and_a_component_is_written(world: Path) -> None:
    assert list(fgrl.list_runs()) == []
    for seed in (0, 1):
        fgrl.run("texts.yaml", seed=seed, progress=False, page=False)
    listed = fgrl.list_runs()
    assert list(listed["recipe"]) == ["texts", "texts"]
    assert set(listed["state"]) == {"finished"}
    assert len(fgrl.list_runs("runs/texts", last=1)) == 1
    assert len(fgrl.list_runs(recipe=["other-*"])) == len(fgrl.list_runs(state=["failed"])) == 0
    assert fgrl.new("segmenter", "every-third") == (Path("every_third.py"), Path("test_every_third.py"))
    with pytest.raises(UsageError, match=r"every_third\.py is already there"):
        fgrl.new("segmenter", "every-third")
