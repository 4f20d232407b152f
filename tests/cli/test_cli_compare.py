"""`fgrl compare`: evaluations of given answers, which need no model, against numbers worked out by hand."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_helpers import answer_of
from typer.testing import CliRunner, Result

from fgrl import registry
from fgrl.cli import app, main
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Metric
from fgrl.library.words import read_sources
from fgrl.measuring.answer import Answer
from fgrl.measuring.held_out import measure
from fgrl.measuring.observations import Observations, Observed
from fgrl.measuring.statistics import weighted_mean
from fgrl.pages.report.comparison_text import comparison_text
from fgrl.runs.results.comparing import Comparison, compare
from fgrl.runs.results.evaluations import Evaluation
from fgrl.runs.run import Run

RECIPE = """about: "Answers that are there already."
seed: 0
vars: {{who: {who}}}
stages:
  evaluate:
    name: evaluate
    prompts: {{name: jsonl, path: prompts.jsonl}}
    given:
      sft: {{name: jsonl, path: sft.jsonl}}
      policy: {{name: jsonl, path: "${{vars.who}}-${{seed}}.jsonl"}}
    baseline: sft
    metrics: {metrics}
"""
METRICS = "[length, {name: rule, rule: 'punctuation:no_comma'}]"
T2 = math.sqrt(2) * 0.95 / math.sqrt(1 - 0.95**2)
"""The 0.975 quantile of Student's t with two degrees of freedom, for which P(|T| < t) = t / sqrt(2 + t^2)."""
PROMPTS = 5
KEPT: dict[str, list[list[int]]] = {
    "plain": [[1, 0, 0, 1, 0], [0, 0, 1, 1, 0], [1, 0, 0, 0, 0]],
    "fine": [[1, 1, 0, 1, 1], [1, 0, 1, 1, 0], [1, 1, 0, 1, 0]],
}
"""By recipe and seed: which prompts get an answer without a comma."""


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def answered(kept: list[int]) -> list[dict[str, Any]]:
    return [
        {"id": str(place), "prompt": "", "responses": [{"text": "a b c" if good else "a, b"}]}
        for place, good in enumerate(kept)
    ]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two recipes whose policies' answers are files."""
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    return tmp_path


def write_world(folder: Path) -> None:
    lines(folder / "prompts.jsonl", [{"id": str(place), "prompt": f"Number {place}?"} for place in range(PROMPTS)])
    lines(folder / "sft.jsonl", answered([0, 0, 0, 0, 1]))
    for who, seeds in KEPT.items():
        recipe(folder, who)
        for seed, kept in enumerate(seeds):
            lines(folder / f"{who}-{seed}.jsonl", answered(kept))


def recipe(folder: Path, who: str, name: str = "", metrics: str = METRICS) -> Path:
    path = folder / f"{name or who}.yaml"
    path.write_text(RECIPE.format(who=who, metrics=metrics), encoding="utf-8")
    return path


def fgrl(*words: object) -> Result:
    """In this process. A mistake leaves as its exception."""
    return CliRunner().invoke(app, [str(word) for word in words])


def told(*words: object) -> dict[str, Any]:
    result = fgrl("compare", *words, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def number(data: dict[str, Any], title: str) -> dict[str, Any]:
    (found,) = [one for one in data["stages"]["evaluate"]["numbers"] if one["number"] == title]
    return found


def test_three_seeds_against_numbers_worked_out_by_hand(world: Path) -> None:
    data = told("plain.yaml", "fine.yaml", "--seeds", "0,1,2", "--run")
    assert data["missing"] == []
    assert data["seeds"] == ["0", "1", "2"]
    assert data["stages"]["evaluate"]["prompts"] == PROMPTS
    assert data["stages"]["evaluate"]["answers"]["fine"] == {"sft": 15, "policy": 15}
    kept = number(data, "rule.kept")
    assert kept["observed"]
    assert kept["before"]["mean"] == pytest.approx(0.2)
    for who, seeds in KEPT.items():
        assert kept["recipes"][who]["seeds"] == {str(k): pytest.approx(sum(row) / 5) for k, row in enumerate(seeds)}
        assert kept["recipes"][who]["mean"] == pytest.approx(np.mean(seeds))
    changes = np.mean(KEPT["fine"], 1) - np.mean(KEPT["plain"], 1)
    change = kept["differences"]["fine"]
    assert list(change["seeds"].values()) == pytest.approx(changes)
    mean, half = changes.mean(), T2 * changes.std(ddof=1) / math.sqrt(3)
    over_seeds = change["over_seeds"]
    assert [over_seeds[key] for key in ("mean", "low", "high", "n")] == pytest.approx(
        [mean, mean - half, mean + half, 3]
    )
    # pairing by prompt: what is drawn is a prompt with the answers of all seeds and of both recipes
    each = (np.array(KEPT["fine"]) - np.array(KEPT["plain"])).mean(0)
    drawn = np.random.default_rng(0).multinomial(PROMPTS, [1 / PROMPTS] * PROMPTS, size=2000) @ each / PROMPTS
    over_prompts = change["over_prompts"]
    assert over_prompts["mean"] == pytest.approx(mean)
    assert [over_prompts["low"], over_prompts["high"]] == pytest.approx(list(np.quantile(drawn, [0.025, 0.975])))
    assert over_prompts["groups"] == PROMPTS


def test_it_says_what_differs_and_prints_every_seed(world: Path) -> None:
    words = ["plain.yaml", "fine.yaml", "--seeds", "0,1,2", "--number", "kept"]
    result = fgrl("compare", *words, "--run")
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert text.startswith("fine against plain; seeds: 0, 1, 2\n")
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    assert ["what differs", "plain", "fine"] in rows
    assert ["evaluate.given.policy.path", "plain-0.jsonl", "fine-0.jsonl"] in rows
    assert "evaluate, policy: 5 prompts; answers: plain 15, fine 15" in text
    head = ["before", "plain", "fine", "difference", "95% over prompts", "95% over seeds"]
    assert head in rows
    (kept,) = [row for row in rows if row[0] == "rule.kept"]
    assert [kept[1], kept[2][:4], kept[3][:4], kept[4]] == ["0.20", "0.33", "0.67", "+0.33"]
    assert kept[6].endswith("(n = 3)")
    assert "length" not in text
    (answer,) = [line for line in text.splitlines() if line.startswith("rule.kept: ")]
    assert (
        answer
        == f"rule.kept: fine is better than plain: +0.33 [{kept[5]}] over prompts and [{kept[6][:-8]}] over seeds."
    )
    markdown = fgrl("compare", *words, "--markdown").stdout.splitlines()
    (row,) = [line for line in markdown if line.startswith("| rule.kept |")]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == kept
    data = told(*words)
    assert number(data, "rule.kept")["recipes"]["plain"]["seeds"] == {"0": 0.4, "1": 0.4, "2": 0.2}


def test_identical_recipes_differ_by_exactly_nothing(world: Path) -> None:
    recipe(world, "fine", "again")
    data = told("fine.yaml", "again.yaml", "fine.yaml", "--seeds", "0,1", "--run")
    assert list(data["recipes"]) == ["fine", "again", "fine (2)"]
    assert data["settings"] == []
    for one in data["stages"]["evaluate"]["numbers"]:
        for change in one["differences"].values():
            for interval in change.values():
                if one["number"] in ("length.tokens", "length.finished"):
                    assert one["notes"]  # text has none
                elif "mean" in interval:
                    assert (interval["mean"], interval["low"], interval["high"]) == (0, 0, 0)
    assert "no setting differs" in fgrl("compare", "fine.yaml", "again.yaml").stdout


def test_without_seeds_each_recipe_keeps_its_own(world: Path) -> None:
    text = (world / "fine.yaml").read_text()
    (world / "fine.yaml").write_text(text.replace("seed: 0", "seed: 2"))
    data = told("plain.yaml", "fine.yaml", "--run")
    assert data["seeds"] == ["own"]
    assert data["recipes"]["fine"]["seeds"] == {"own": 2}
    kept = number(data, "rule.kept")
    assert kept["recipes"]["fine"]["seeds"] == {"own": pytest.approx(0.6)}
    assert kept["differences"]["fine"]["over_seeds"]["low"] is None
    text = fgrl("compare", "plain.yaml", "fine.yaml").stdout
    assert "seeds: own (plain 0, fine 2)" in text
    assert "over seeds: no interval, there is one seed" in text


def test_what_has_not_run_is_said_with_its_command(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "plain.yaml", "fine.yaml", "--seeds", "0,1", "--runs", "elsewhere", "vars.who=plain"]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "nothing can be compared" in said
    assert "  fgrl run plain.yaml vars.who=plain seed=0 --runs elsewhere\n" in said
    assert "  fgrl run fine.yaml vars.who=plain seed=1 --runs elsewhere\n" in said
    for seed in (0, 1):
        assert fgrl("run", "plain.yaml", f"seed={seed}", "-q").exit_code == 0
    assert fgrl("run", "fine.yaml", "seed=1", "-q").exit_code == 0
    data = told("plain.yaml", "fine.yaml", "--seeds", "0,1")
    assert data["missing"] == [
        {"recipe": "fine", "seed": "0", "stages": ["evaluate"], "command": "fgrl run fine.yaml seed=0"}
    ]
    kept = number(data, "rule.kept")
    assert list(kept["recipes"]["plain"]["seeds"]) == ["0", "1"]
    assert kept["differences"]["fine"]["seeds"] == {"1": pytest.approx(0.2)}
    assert kept["differences"]["fine"]["over_prompts"]["mean"] == pytest.approx(0.2)  # of that seed alone
    text = fgrl("compare", "plain.yaml", "fine.yaml", "--seeds", "0,1").stdout
    assert "- fine, seed 0: evaluate: fgrl run fine.yaml seed=0" in text


def test_settings_that_have_run_are_named_where_others_have_not(
    world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["fgrl", "run", "plain.yaml", "seed=1", "-q"])
    assert fgrl("run", "plain.yaml", "seed=1", "-q").exit_code == 0
    for words in (["compare", "plain.yaml", "fine.yaml"], ["export", "plain.yaml:evaluate", "out", "--merge"]):
        monkeypatch.setattr("sys.argv", ["fgrl", *words])
        with pytest.raises(SystemExit):
            main(words)
        told = capsys.readouterr().err
        assert f"plain has run with other settings: fgrl {' '.join(words)} seed=1\n" in f"{told}\n"
    assert "fgrl run plain.yaml; plain has run" in told
    monkeypatch.setattr("sys.argv", ["my_script.py"])
    (source,) = read_sources([Path("plain.yaml")], Path("runs"))
    assert source.recipes[0].with_other_settings().endswith(": fgrl table plain.yaml seed=1")


def test_a_dry_run_says_what_would_run(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["compare", "plain.yaml", "fine.yaml", "--dry-run"])
    assert left.value.code == 0
    assert "fgrl run plain.yaml\n" in (said := capsys.readouterr().err)
    assert "fgrl run fine.yaml\n" in said
    assert not (world / "runs").exists()


def test_evaluations_of_a_baseline_alone_are_compared(world: Path) -> None:
    for who in KEPT:
        text = recipe(world, who).read_text().replace("      sft: {name: jsonl, path: sft.jsonl}\n", "")
        (world / f"{who}.yaml").write_text(text.replace("baseline: sft", "baseline: policy"))
    data = told("plain.yaml", "fine.yaml", "--run")
    assert number(data, "rule.kept")["differences"]["fine"]["over_prompts"]["mean"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plain.yaml"], "at least two recipes"),
        (["plain.yaml", "fine.yaml", "--seeds", "0,a"], "wants whole numbers"),
        (["plain.yaml", "fine.yaml", "--seeds", "0,0"], "wants different numbers"),
        (["plain.yaml", "fine.yaml", "--seeds", "0", "seed=1"], "give one of the two"),
        (["plain.yaml", "fine.yaml", "--stage", "evalute"], 'did you mean "evaluate"'),
        (["plain.yaml", "fine.yaml", "--number", "kappa"], "has 'kappa' in its name"),
        (["plain.yaml", "fine.yaml", "--model", "pilicy"], "no model is called pilicy; there are sft, policy"),
        (["plain.yaml", "fin.yaml"], 'did you mean "fine.yaml"'),
    ],
)
def test_mistakes_are_explained(world: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for who in KEPT:
        fgrl("run", f"{who}.yaml", "-q")
    with pytest.raises(SystemExit) as left:
        main(["compare", *words])
    assert left.value.code == 2
    assert said in re.sub(r"[\s│]+", " ", capsys.readouterr().err)


def test_other_prompts_and_other_settings_are_not_compared(world: Path) -> None:
    recipe(world, "fine", metrics="[length, {name: rule, rule: 'change_case:english_lowercase', title: rule}]")
    data = told("plain.yaml", "fine.yaml", "--run")
    kept = number(data, "rule.kept")
    assert set(kept["recipes"]) == {"plain", "fine"}
    assert kept["differences"] == {}
    (note,) = [note for note in kept["notes"] if "no difference is taken" in note]
    assert note.startswith("fine does not measure it as plain does, so no difference is taken: ")
    assert "metrics.rule.rule: change_case:english_lowercase, not" in note
    assert any("evaluate.metrics.1.rule" in one["key"] for one in data["settings"])
    lines(world / "asked.jsonl", [{"id": str(place), "prompt": "Why?"} for place in range(PROMPTS)])
    text = (world / "plain.yaml").read_text()
    (world / "third.yaml").write_text(text.replace("prompts.jsonl", "asked.jsonl"))
    data = told("plain.yaml", "third.yaml", "fine.yaml", "--run")
    assert set(number(data, "length.words")["recipes"]) == {"plain", "fine"}
    (note,) = data["stages"]["evaluate"]["notes"]
    assert note.startswith("third, seed 0, is left out: its prompts differ from those of plain (5 prompts")


def test_a_baseline_that_is_not_the_same_is_shown_for_each(world: Path) -> None:
    lines(world / "other.jsonl", answered([1, 1, 1, 1, 1]))
    text = (world / "fine.yaml").read_text()
    (world / "fine.yaml").write_text(text.replace("sft.jsonl", "other.jsonl"))
    before = number(told("plain.yaml", "fine.yaml", "--run"), "rule.kept")["before"]
    assert {name: side["mean"] for name, side in before.items()} == {"plain": pytest.approx(0.2), "fine": 1.0}
    assert "0.20 (plain), 1.00 (fine)" in fgrl("compare", "plain.yaml", "fine.yaml").stdout


def test_a_failed_run_leaves_with_its_code(world: Path) -> None:
    lines(world / "fine-1.jsonl", answered([1, 1]))  # three prompts have no answer
    result = fgrl("compare", "plain.yaml", "fine.yaml", "--seeds", "0,1", "--run")
    assert result.exit_code == 3
    assert "fgrl run fine.yaml seed=1" in result.stderr


# -- beneath the command -----------------------------------------------------------------------------------------------


def an_answer(id: str, response: str, references: list[str] | None = None) -> Answer:
    return answer_of(id, f"{id}?", response, references=references or [])


def evaluation(measured: dict[str, Any], observed: Observations) -> Evaluation:
    made = Evaluation({"metrics": measured, "observations": "sha256"})
    made.observed = observed
    return made


def judged(mean: float, half: float = 0.1) -> dict[str, Any]:
    numbers = {"policy": {"win_rate": {"mean": mean, "low": mean - half, "high": mean + half, "n": 8}}}
    return {"baseline": "sft", "metrics": {"judge": numbers}}


def test_recorded_numbers_are_taken_as_they_are_and_it_is_said_why() -> None:
    """Those of an earlier version, and of a metric that returns finished numbers."""
    for made, reason in (
        ({}, "no observations: it was measured by an earlier version of fgrl"),
        ({"observations": None}, "no observations: the metric returns finished numbers"),
    ):
        means = {"a": {"0": 0.5, "1": 0.6}, "b": {"0": 0.7, "1": 0.6}}
        sides = {
            name: {seed: Evaluation(judged(mean) | made) for seed, mean in own.items()} for name, own in means.items()
        }
        (found,) = compare("evaluate", sides).numbers
        assert not found.observed
        assert found.differences["b"].over_prompts is None
        assert found.differences["b"].over_seeds.mean == pytest.approx(0.1)
        assert (found.why_recorded, found.notes) == (reason, [])
        assert (found.recipes["a"].mean, found.recipes["a"].low) == (pytest.approx(0.55), None)
        one = {name: {"0": seeds["0"]} for name, seeds in sides.items()}
        (found,) = compare("evaluate", one).numbers
        assert found.recipes["b"].low == pytest.approx(0.6)  # of one seed the stage's own interval holds


def test_numbers_across_answers_are_never_mixed_between_seeds() -> None:
    """Two seeds that say the same to different prompts copied nothing, and an answer without a reference is left out."""
    know_components()
    metrics = [registry.build(Metric, "repetition"), registry.build(Metric, "exact_match")]

    def of(one: str, two: str) -> Evaluation:
        found = [
            an_answer("1", one, ["x"]),
            an_answer("2", two, ["y"]),
            an_answer("3", one + two, ["No Answer Present."]),
        ]
        measured, observed = measure(metrics, {"policy": found}, "policy")
        return evaluation(measured, observed)

    found = compare("e", {"a": {"0": of("x", "q"), "1": of("q", "x")}, "b": {"0": of("x", "y"), "1": of("x", "y")}})
    by_title = {one.number: one for one in found.numbers}
    assert by_title["repetition.copied"].recipes["a"].mean == 0
    match = by_title["exact_match"]
    assert match.recipes["a"].seeds == {"0": 0.5, "1": 0.0}
    assert match.differences["b"].seeds == {"0": 0.5, "1": 1.0}
    assert "a: 4 of 6 answers have a value" in match.notes
    assert match.recipes["a"].groups == 2


def test_a_seed_without_a_value_is_left_out_and_said() -> None:
    def of(values: list[float | None], stored: float | None) -> Evaluation:
        answers = {"policy": [an_answer(str(place), "") for place in range(len(values))]}
        part = weighted_mean(values, [str(place) for place in range(len(values))])
        own = {"m": Observed({"policy": {"n": part}}, {"resamples": 200, "level": 0.9, "seed": 1})}
        return evaluation({"m": {"policy": {"n": {"mean": stored}}}}, Observations.of(own, answers))

    sides = {
        "a": {"0": of([1, 2], 1.5), "1": of([3, 4], 3.5)},
        "b": {"0": of([None, None], None), "1": of([4, 6], 5.0)},
    }
    (found,) = compare("e", sides).numbers
    assert found.recipes["b"].seeds == {"0": None, "1": 5.0}
    assert found.differences["b"].seeds == {"0": None, "1": 1.5}
    assert found.differences["b"].over_seeds.n == 1
    over_prompts = found.differences["b"].over_prompts
    assert over_prompts is not None
    assert over_prompts.mean == 1.5  # of the seed that both have
    assert found.level == 0.9
    assert "b has no value at seed 0, which its mean leaves out" in found.notes


def test_an_interval_over_seeds_is_not_called_one_over_prompts(tmp_path: Path) -> None:
    means = {"a": (0.5, 0.6, 0.55), "b": (0.8, 0.85, 0.9)}
    sides = {
        name: {str(seed): Evaluation(judged(mean)) for seed, mean in enumerate(own)} for name, own in means.items()
    }
    runs = {name: {str(seed): Run(tmp_path) for seed in range(3)} for name in "ab"}
    compared = compare("evaluate", sides)
    text = comparison_text(Comparison(dict.fromkeys("ab", ""), runs, [compared], [], []))
    (sentence,) = [line for line in text.splitlines() if "better" in line or "higher" in line]
    assert "over seeds" in sentence
    assert "over prompts" not in sentence


def test_the_reason_for_a_missing_interval_is_printed_once(tmp_path: Path) -> None:
    def of(mean: float) -> Evaluation:
        numbers = {"policy": {"win_rate": {"mean": mean}, "ties": {"mean": 0.0}, "wins": {"mean": mean}}}
        report = {"metrics": {"judge": numbers, "other": {"policy": {"mean": 1.0}}}}
        return Evaluation(report | {"observations": None})

    compared = compare("evaluate", {"a": {"0": of(0.5)}, "b": {"0": of(0.6)}})
    runs = {name: {"0": Run(tmp_path)} for name in "ab"}
    text = comparison_text(Comparison(dict.fromkeys("ab", ""), runs, [compared], [], []))
    reason = "only the recorded means: no observations: the metric returns finished numbers"
    assert text.count(reason) == 1
    assert f"- judge.win_rate, judge.wins: no paired interval over prompts, {reason}" in text
