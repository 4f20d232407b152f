"""The recipe on the page about chains can be planned; its chains and pairs run with answers from a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.experiments.recipe import load
from fgrl.feedback.chain_checks import PROBLEMS, EditLimits
from fgrl.feedback.chain_tags import read_tags
from fgrl.kinds import PairBuilder, Rewriter
from fgrl.registry import Context, build, names
from fgrl.types import Annotation, Pairs, Response, Sample, Samples, Span, read_jsonl, write_jsonl

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "chains.md").read_text(encoding="utf-8")
TEXT = "The mill is very very old, and people come to see it."
STEP = "The mill is <dislike id='2'>ancient</dislike id='2'>, and people come to see it."
LAST = "The mill is a ruin, and people come to see it."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for recipes, beside the prompts and the package, with annotations."""
    for name in ("prompts", "fgrl"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "recipes").mkdir()
    spans = [Span(start=12, end=21, label=-1, reasons=["too_wordy"]), Span(start=17, end=25, label=-1)]
    samples = [
        Sample(
            id=name,
            prompt=f"{name}?",
            responses=[Response(text=TEXT, annotations=[Annotation(by="ada", spans=spans)])],
            meta={"document": "A mill."},
        )
        for name in ("good", "bad")
    ]
    write_jsonl(tmp_path / "recipes" / "annotated.jsonl", samples)
    lines = [
        {"contains": "## User Query\ngood?", "answer": {"steps": [STEP, LAST]}},
        {"any": True, "answer": {"steps": [STEP, STEP]}},
    ]
    (tmp_path / "recipes" / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "recipes"


def recipe(folder: Path) -> Path:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = folder / "page.yaml"
    file.write_text('about: "Of the page."\nseed: 1\n' + block)
    return file


def call(*arguments: object) -> Any:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.stdout


def test_the_recipe_can_be_built(folder: Path) -> None:
    stages = load(str(recipe(folder))).stages
    assert list(stages) == ["queries", "responses", "chains", "pairs", "sft"]
    assert list(stages["queries"].data.of) == ["yelp", "news", "wikipedia", "arxiv"]
    assert (stages["responses"].sampling.temperature, stages["responses"].sampling.top_p) == (0.8, 0.95)
    texts = stages["chains"].annotator._texts()
    assert texts["too_wordy"] == "I dislike this because it's too wordy."


def test_chains_and_pairs_are_planned_and_run(folder: Path) -> None:
    overrides = [
        "stages.queries=null", "stages.responses=null", "stages.sft=null", "stages.pairs.max_pairs=1",
        "stages.chains.annotator.attempts=2",
        f"stages.chains.annotator.rewriter.client={{name: replay, answers: {folder / 'answers.jsonl'}}}",
    ]  # fmt: skip
    file, runs = recipe(folder), folder / "runs"
    plan = json.loads(call("plan", file, *overrides, "--runs", runs, "--json"))["stages"]
    assert plan["chains"]["estimate"]["calls"]["calls"] == 2
    call("run", file, *overrides, "--runs", runs)
    (chains,) = (runs / "stages").glob("chains-*")
    summary = json.loads((chains / "stage.json").read_text())["summary"]
    assert (summary["chains"], summary["failed"], summary["check pass rate"]) == (1, 1, 0.3333)
    assert summary["refused: addressed passage still tagged"] == 2
    (made,) = Samples(chains / "out").read()
    assert [response.text for response in made.responses] == [
        TEXT,
        "The mill is ancient, and people come to see it.",
        LAST,
    ]
    (failed,) = read_jsonl(chains / "out" / "failed.jsonl", Sample)
    assert failed.meta["chain"]["failed"] == "addressed passage still tagged"
    (pairs,) = (runs / "stages").glob("pairs-*")
    (pair,) = Pairs(pairs / "out").read()
    assert (pair.meta["sample"], pair.meta["kind"]) == ("good/0/ada", "stepwise")


def test_the_tables_name_what_there_is(folder: Path) -> None:
    first_column = {
        cell for row in re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE) for cell in re.findall(r"`(.*?)`", row)
    }
    assert set(PROBLEMS) <= first_column
    limits = EditLimits()
    for name in ("max_change", "gap", "reach"):
        assert f"`{name}` ({getattr(limits, name):g})" in PAGE
    written = [yaml.safe_load(cell) for cell in first_column if cell.startswith("{name: ")]
    context = Context(folder=lambda path: folder)
    built = [build(Rewriter, one | ({"client": {"name": "replay", "answers": "answers.jsonl"}} if "client" in one else {}), context=context) for one in written]  # fmt: skip
    assert len(built) == 5
    assert {one["name"] for one in written} == set(names("rewriter"))
    pairs = [yaml.safe_load(cell) for cell in re.findall(r"\| `(\{name: (?:chain|judged).*?\})`", PAGE)]
    assert [type(build(PairBuilder, one)).__name__ for one in pairs] == ["ChainPairs"] * 3 + ["Judged"]


def test_the_example_of_tags_can_be_read() -> None:
    (tagged,) = re.findall(r"^The mill is <dislike.*$", PAGE, re.MULTILINE)
    marked = read_tags(tagged, {"like": "like", "dislike": "dislike"})
    assert [marked.text[one.start : one.end] for one in marked.highlights] == ["very very", "very old", "people come"]
