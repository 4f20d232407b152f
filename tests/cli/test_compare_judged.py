"""`fgrl compare` where a judge decided: paired intervals over prompts from what was observed, without the models."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import tiny_model
from test_cli_compare import answered, fgrl, lines, number, told

import fgrl as fgrl_library
from fgrl.measuring.answer import read_answers

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """about: "Two policies and a judge."
seed: 0
stages:
  evaluate:
    name: evaluate
    prompts: {{name: jsonl, path: prompts.jsonl}}
    models: {{sft: sft, policy: {who}}}
    baseline: sft
    sampling: {{max_new_tokens: 8, temperature: 1.0}}
    metrics:
    - length
    - {{name: win_rate, client: {{name: replay, answers: {judge}}}, prompt: {prompt}}}
"""
PROMPTS = 30
VERDICTS = ["[[1]]", "[[2]]", "[[tie]]", "[[1]]", "no verdict"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recipes that have run with a judge; their models are gone."""
    folder = tmp_path_factory.mktemp("judged")
    lines(folder / "prompts.jsonl", [{"id": str(place), "prompt": f"Number {place}?"} for place in range(PROMPTS)])
    shown = {chr(code): VERDICTS[code % len(VERDICTS)] for code in range(1, 256)} | {"\ufffd": "[[2]]"}
    said = [{"contains": f"<answer_1>\n{first}", "answer": verdict} for first, verdict in shown.items()]
    lines(folder / "judge.jsonl", [*said, {"any": True, "answer": "[[tie]]"}])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, name in enumerate(("sft", "one", "two")):
            tiny_model(folder / name, seed)
        for who in ("one", "two"):
            text = RECIPE.format(who=who, judge="judge.jsonl", prompt=ROOT / "prompts" / "judge_pairwise.txt")
            (folder / f"{who}.yaml").write_text(text)
            done = fgrl("run", f"{who}.yaml", "-q")
            assert done.exit_code == 0, (done.output, done.exception)
        for name in ("sft", "one", "two", "runs/cache"):
            shutil.rmtree(folder / name)
        (folder / "judge.jsonl").unlink()
    return folder


def product(folder: Path, who: str) -> Path:
    (out,) = (folder / "runs" / who).glob("*/stages/evaluate/out")
    return out


def wins(out: Path) -> dict[str, float]:
    """By prompt, from the judge's own words: 1 where both orders name the policy, 0 where both name the other."""
    values: dict[str, list[float]] = {}
    for line in (out / "judgements-win-rate.jsonl").read_text().splitlines():
        row = json.loads(line)
        if (place := {"[[1]]": 1.0, "[[2]]": 0.0, "[[tie]]": 0.5}.get(row["said"])) is None:
            place = np.nan
        values.setdefault(row["id"], []).append(place if row["first"] == "policy" else 1 - place)
    both = {id: (own[0] if own[0] == own[1] else 0.5) for id, own in values.items() if not np.isnan(own).any()}
    assert 3 < len(both) < PROMPTS, "some judgements are missing"
    return both


def words(out: Path) -> dict[str, float]:
    return {one.id: float(len(one.text)) for one in read_answers(out / "answers.jsonl")["policy"]}


@pytest.mark.parametrize(("name", "of"), [("win_rate", wins), ("length.characters", words)])
def test_paired_intervals_over_prompts_are_those_of_a_bootstrap_by_hand(
    ran: Path, monkeypatch: pytest.MonkeyPatch, name: str, of: Callable[[Path], dict[str, float]]
) -> None:
    monkeypatch.chdir(ran)
    found = number(told("runs/one", "runs/two"), name)
    assert found["observed"]
    sides = [of(product(ran, who)) for who in ("one", "two")]
    # rows in the order of the prompts: a prompt without a value is drawn, too
    values = np.array([[side.get(str(place), np.nan) for place in range(PROMPTS)] for side in sides])
    known, filled = ~np.isnan(values), np.nan_to_num(values)
    drawn = np.random.default_rng(0).multinomial(PROMPTS, [1 / PROMPTS] * PROMPTS, size=2000)
    means = (drawn @ filled.T) / (drawn @ known.T)
    changes = means[:, 1] - means[:, 0]
    change = found["differences"]["two"]["over_prompts"]
    assert change["mean"] == pytest.approx(np.nanmean(values[1]) - np.nanmean(values[0]), abs=1e-12)
    ends = np.quantile(changes[~np.isnan(changes)], [0.025, 0.975])
    assert [change["low"], change["high"]] == pytest.approx(list(ends), abs=1e-12)
    assert change["low"] < change["high"]
    own = found["recipes"]["two"]
    assert [own["low"], own["high"]] == pytest.approx(list(np.nanquantile(means[:, 1], [0.025, 0.975])), abs=1e-12)


def test_a_changed_observation_changes_every_view(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ran, tmp_path / "own", symlinks=True)
    monkeypatch.chdir(tmp_path / "own")
    before = number(told("runs/one", "runs/two"), "win_rate")["recipes"]["two"]["mean"]
    out = product(tmp_path / "own", "two").resolve()
    head, *rows = (out / "observations.jsonl").read_text().splitlines()
    changed = [json.loads(row) for row in rows]
    (win,) = [one for one in changed if (one["metric"], one["number"]) == ("win_rate", "win_rate")]
    win["rows"] = [[total, total] for _won, total in win["rows"]]
    (out / "observations.jsonl").write_text("\n".join([head, *map(json.dumps, changed)]) + "\n")
    assert "has" in fgrl("table", "runs/two").exception.args[0]  # type: ignore[union-attr]
    record = json.loads((out.parent / "stage.json").read_text())
    del record["files"]["observations.jsonl"]
    (out.parent / "stage.json").write_text(json.dumps(record))
    assert before < 1
    assert "win_rate  1 [1 to 1]" in fgrl("table", "runs/two", "--number", "win_rate.win_rate").stdout
    found = json.loads(fgrl("frontier", "runs/two", "--x", "length.words", "--y", "win_rate", "--json").stdout)
    assert [point["y"]["mean"] for point in found["points"]] == [1]
    assert number(told("runs/one", "runs/two"), "win_rate")["recipes"]["two"]["mean"] == 1
    assert fgrl("report", product(tmp_path / "own", "two").parents[2]).exit_code == 0
    page = (product(tmp_path / "own", "two").parents[2] / "report.html").read_text()
    assert "1 to 1" in page


GIVEN = """about: "Answers that are there already."
seed: 0
stages:
  evaluate:
    name: evaluate
    prompts: {{name: jsonl, path: prompts.jsonl}}
    given:
      sft: {{name: jsonl, path: {sft}.jsonl}}
      policy: {{name: jsonl, path: {who}.jsonl}}
    baseline: sft
    metrics:
    - {{name: win_rate, client: {{name: replay, answers: {judge}.jsonl}}, prompt: {prompt}.txt}}
    - {{name: elo, client: {{name: replay, answers: {judge}.jsonl}}, prompt: {prompt}.txt}}
"""
ASKED = "Which is better?\n<answer_1>\n{first}\n</answer_1>\n<answer_2>\n{second}\n</answer_2>"


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "prompts.jsonl", [{"id": str(place), "prompt": "?"} for place in range(5)])
    for name, kept in {
        "sft": [0, 0, 1, 0, 1],
        "other": [1, 0, 1, 0, 0],
        "one": [1, 0, 0, 1, 0],
        "two": [1, 1, 0, 1, 0],
    }.items():
        lines(tmp_path / f"{name}.jsonl", answered(kept))
    by_text = [{"contains": "<answer_1>\na b c", "answer": "[[1]]"}, {"any": True, "answer": "[[2]]"}]
    lines(tmp_path / "judge.jsonl", by_text)
    lines(tmp_path / "strict.jsonl", [{"any": True, "answer": "[[tie]]"}])
    (tmp_path / "ask.txt").write_text(ASKED)
    (tmp_path / "say.txt").write_text(f"{ASKED}\nSay why.")
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"sft": "other"}, "the answers of sft are others"),
        ({"judge": "strict"}, "metrics.win_rate.client.answers: sha256 "),
        ({"prompt": "say"}, "metrics.win_rate.prompt: sha256 "),
    ],
)
def test_win_rates_and_ratings_are_compared_only_where_opponents_judge_and_prompt_are_the_same(
    given: Path, changes: dict[str, str], said: str
) -> None:
    settings: dict[str, Any] = {"sft": "sft", "judge": "judge", "prompt": "ask"}
    (given / "one.yaml").write_text(GIVEN.format(who="one", **settings))
    (given / "two.yaml").write_text(GIVEN.format(who="two", **settings | changes))
    data = told("one.yaml", "two.yaml", "--run")
    for name in ("win_rate", "elo.rating"):
        found = number(data, name)
        assert set(found["recipes"]) == {"one", "two"}, "both are shown"
        notes = [note for note in found["notes"] if "no difference is taken" in note]
        if not said:
            assert found["differences"]["two"]["over_prompts"]["mean"] is not None
            assert not notes
            continue
        assert found["differences"] == {}
        (note,) = notes
        assert note.startswith("two does not measure it as one does, so no difference is taken: ")
        assert said.replace("metrics.win_rate", f"metrics.{name.partition('.')[0]}") in note


TABLE = """about: "A table of one cell."
recipes: {two: two.yaml}
columns: {Won: {number: evaluate/win_rate.win_rate}}
rows: {Two: {recipe: two}}
"""


def views(log: Path) -> dict[str, str]:
    """What each view shows of the numbers of one recipe."""
    shown = {
        name: fgrl(*words).stdout
        for name, words in {
            "table": ["table", "runs/two", "--number", "win_rate.win_rate"],
            "compare": ["compare", "runs/one", "runs/two", "--number", "win_rate.win_rate"],
            "frontier": ["frontier", "runs/two", "--x", "elo.win_rate", "--y", "win_rate.win_rate"],
            "paper": ["table", "paper.yaml"],
            "elo": ["elo", "runs/two"],
            "curves": ["curves", "runs/two", "--metric", "won"],
        }.items()
    }
    assert fgrl("report", "runs/two").exit_code == 0
    shown["report"] = re.sub(r"<[^>]*>", "", (log.parents[3] / "report.html").read_text())
    return shown | {"python": fgrl_library.table("runs/two", wanted="win_rate.win_rate").to_csv()}


def test_one_stored_value_changes_every_view_that_shows_it(given: Path) -> None:
    settings = {"sft": "sft", "judge": "judge", "prompt": "ask"}
    for who in ("one", "two"):
        (given / f"{who}.yaml").write_text(GIVEN.format(who=who, **settings))
        assert fgrl("run", f"{who}.yaml", "-q").exit_code == 0
    (given / "paper.yaml").write_text(TABLE)
    out = product(given, "two")
    log = out.resolve().parent / "log.jsonl"
    lines(log, [{"step": 0, "won": 0.5}])
    before = views(out / "log.jsonl")
    head, *rows = (out / "observations.jsonl").read_text().splitlines()
    changed = [json.loads(row) for row in rows]
    for one in changed:
        if (one["metric"], one["number"], one["model"]) == ("win_rate", "win_rate", "policy"):
            one["rows"][2] = [1.0, 1.0]  # the policy lost this prompt
        if one["statistic"] in ("elo_rating", "elo_difference"):
            one["rows"] = [[same, lost, won, again] for same, won, lost, again in one["rows"]]
    (out / "observations.jsonl").write_text("\n".join([head, *map(json.dumps, changed)]) + "\n")
    lines(log, [{"step": 0, "won": 0.75}])
    record = json.loads((out.resolve().parent / "stage.json").read_text())
    written = (out / "observations.jsonl").read_bytes()
    record["files"]["observations.jsonl"] = {"bytes": len(written), "sha256": hashlib.sha256(written).hexdigest()}
    (out.resolve().parent / "stage.json").write_text(json.dumps(record))
    after = views(out / "log.jsonl")
    assert [name for name in before if before[name] == after[name]] == []
    assert not any("Traceback" in shown for shown in after.values())
