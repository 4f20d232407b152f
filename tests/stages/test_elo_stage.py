"""From answers and from verdicts of people to an Elo table: stages, the command and the page."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from fgrl.cli import app
from fgrl.experiments import recipe as recipes
from fgrl.experiments.pipeline import estimates, plan
from fgrl.feedback.page_settings import load_settings
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparisons_to_judge import to_compare
from fgrl.pages.annotation.export import exported
from fgrl.pages.annotation.store import Store
from fgrl.types import PairVerdict, Response, Sample, read_jsonl, write_jsonl

STRENGTH = {"base": 0, "sft": 1, "chains": 2}


def fgrl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def verdicts(path: Path) -> Path:
    """Two people compare three models on 20 prompts: the stronger one wins in three of four comparisons."""
    draw = random.Random(0)
    samples = []
    for prompt in range(20):
        for one, two in combinations(STRENGTH, 2):
            better = max(one, two, key=lambda name: STRENGTH[name])
            responses = [Response(text=f"{name} {prompt}", by=name) for name in (one, two)]
            given = [
                PairVerdict(
                    first=0,
                    second=1,
                    by=person,
                    verdict="first" if (draw.random() < 0.75) == (better == one) else "second",
                )
                for person in ("ada", "bob")
            ]
            meta = {"prompt_id": f"q{prompt}"}
            samples.append(
                Sample(id=f"q{prompt}-{one}-{two}", prompt="?", responses=responses, verdicts=given, meta=meta)
            )
    write_jsonl(path, samples)
    return path


def people(folder: Path, **fields: Any) -> Path:
    verdicts(folder / "people.jsonl")
    stage = {"name": "elo", "verdicts": {"name": "jsonl", "path": "people.jsonl"}, "title": "people", **fields}
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"about": "People.", "stages": {"rated": stage}}))
    return folder / "recipe.yaml"


def test_verdicts_of_people_become_a_table_by_one_command(tmp_path: Path) -> None:
    recipe, runs = people(tmp_path, baseline="base"), ["--runs", tmp_path / "runs"]
    done = fgrl("run", recipe, *runs)
    assert done.exit_code == 0, done.output + str(done.exception)
    (out,) = (tmp_path / "runs" / "stages").glob("rated-*/out")
    metrics = json.loads((out / "metrics.json").read_text())["metrics"]["people"]
    assert metrics["chains"]["rating"]["mean"] > metrics["sft"]["rating"]["mean"] > metrics["base"]["rating"]["mean"]
    base = metrics["base"]["difference"]
    assert base["low"] < base["mean"] < base["high"] < 0
    assert base["groups"] == 20, "prompts are drawn, not samples"
    assert metrics["differences"]["chains"]["rating"]["mean"] == pytest.approx(-base["mean"])
    summary = json.loads((out.parent / "stage.json").read_text())["summary"]
    assert (summary["best"], summary["games"], summary["judges"]) == ("chains", 120, {"ada": 60, "bob": 60})
    # the table, as text, Markdown and JSON; from the stage, from the run and from the file of verdicts
    shown = fgrl("elo", recipe, *runs)
    assert shown.exit_code == 0, shown.output
    head, *rows = [line.split() for line in shown.stdout.splitlines()[2:6]]
    assert head[:2] == ["model", "rating"]
    assert [row[0] for row in rows] == ["chains", "sft", "base"]
    assert rows[0][5] == "best"
    assert "120 games judged by ada, bob; intervals over 1,000 resamples of the prompts" in shown.stdout
    assert "| chains |" in fgrl("elo", recipe, *runs, "--markdown", "--pairs").stdout
    (of_stage,) = json.loads(fgrl("elo", recipe, *runs, "--json").stdout)["tables"]
    (of_file,) = json.loads(fgrl("elo", tmp_path / "people.jsonl", "--json").stdout)["tables"]
    (of_run,) = json.loads(fgrl("elo", tmp_path / "runs" / "recipe", "--json").stdout)["tables"]
    for name in ("models", "meetings", "about", "best", "settings"):
        assert of_stage[name] == of_file[name] == of_run[name]
    assert of_stage["models"][2]["difference"] == base
    assert [(each["first"], each["won"] + each["lost"]) for each in of_stage["meetings"]] == [
        ("chains", 40), ("chains", 40), ("sft", 40),
    ]  # fmt: skip
    # other settings fit again: to the observations, and to the games of one judge
    words = ["--anchor", "base=1000", "--ridge", "0.5"]
    (fixed,) = json.loads(fgrl("elo", recipe, *runs, "--json", *words).stdout)["tables"]
    (again,) = json.loads(fgrl("elo", tmp_path / "people.jsonl", "--json", *words).stdout)["tables"]
    assert fixed["models"] == again["models"]
    assert fixed["models"][2]["rating"]["mean"] == pytest.approx(1000)
    assert fixed["settings"]["ridge"] == 0.5
    (ada,) = json.loads(fgrl("elo", recipe, *runs, "--json", "--by", "ada").stdout)["tables"]
    assert "60 games judged by ada" in ada["about"]
    both = fgrl("elo", recipe, tmp_path / "people.jsonl", *runs, "--side-by-side")
    first, *models = [line.split("  ") for line in both.stdout.splitlines()[:4]]
    assert [cell.strip() for cell in first if cell] == ["model", "recipe, rated: people", "people.jsonl"]
    assert [line[1].strip() for line in models] == ["chains", "sft", "base"]
    assert both.stdout.count("[best]") == 2
    assert "| sft |" in fgrl("elo", recipe, *runs, "--side-by-side", "--markdown").stdout
    assert "chains" in fgrl("table", recipe, *runs, "--number", "people.difference").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--by", "eve"], 3, "no games were decided by eve; there are games by ada, bob"),
        (["--anchor", "chain=1000"], 3, "anchor: 'chain' has no games"),
        (["--anchor", "base=high"], 2, "wants MODEL=RATING"),
        (["--level", "95"], 2, "wants a number between 0 and 1"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    done = fgrl("elo", verdicts(tmp_path / "people.jsonl"), *words)
    assert done.exit_code == code or (done.exception is not None and getattr(done.exception, "exit_code", None) == code)
    assert said in done.output + str(done.exception)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"by": ["eve"]}, "no verdicts are by eve; there are verdicts by ada, bob"),
        ({"baseline": "none"}, "baseline 'none' has no games; there are games of base, chains, sft"),
        ({"anchor": {"model": "none"}}, "anchor: 'none' has no games"),
    ],
)
def test_what_the_verdicts_do_not_have_is_named(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    done = fgrl("run", people(tmp_path, **fields), "--runs", tmp_path / "runs")
    assert done.exit_code == 3
    assert said in done.output


def test_samples_without_verdicts_are_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "people.jsonl", [Sample(id="1", prompt="?")])
    done = fgrl("elo", tmp_path / "people.jsonl")
    assert "people.jsonl: no sample has `verdicts`" in str(done.exception)


# -- what people are to compare ----------------------------------------------------------------------------------------


def answers(models: int, prompts: int) -> dict[str, list[Answer]]:
    return {
        f"m{model}": [
            Answer(
                sample=Sample(id=f"p{prompt}", prompt="?", meta={"document": "d"}),
                response=Response(text=f"{model} {prompt}"),
            )
            for prompt in range(prompts)
        ]
        for model in range(models)
    }


def test_pairs_for_people_are_balanced_and_blind_in_their_order() -> None:
    """The paper's size: 7 models, 40 prompts, 263 comparisons."""
    samples = to_compare(answers(7, 40), 263)
    assert len({sample.id for sample in samples}) == 263
    pairs = [tuple(sorted(str(response.by) for response in sample.responses)) for sample in samples]
    counts = [pairs.count(pair) for pair in set(pairs)]
    assert (len(counts), min(counts), max(counts)) == (21, 12, 13)
    prompts = [sample.meta["prompt_id"] for sample in samples]
    assert max(map(prompts.count, prompts)) - min(map(prompts.count, prompts)) <= 2
    assert len({(sample.meta["prompt_id"], pair) for sample, pair in zip(samples, pairs, strict=True)}) == 263
    first = sum(sample.responses[0].by == pair[0] for sample, pair in zip(samples, pairs, strict=True))
    assert 100 < first < 163
    assert samples[0].meta["document"] == "d"
    assert to_compare(answers(7, 40), 263) == samples
    assert to_compare(answers(7, 40), 263, seed=1) != samples
    assert len(to_compare(answers(3, 4))) == 12
    with pytest.raises(Exception, match="13 comparisons are wanted, but there are 12 pairs"):
        to_compare(answers(3, 4), 13)


# -- end to end on the tiny model --------------------------------------------------------------------------------------

GRID = """
about: "Two learning rates, the better one by Elo on validation prompts, and a table of three models."
vars: {{base: {base}, rule: {{name: "keywords:letter_frequency", letter: e, let_frequency: 3, let_relation: at least}}}}
stages:
  slow:
    name: finetune
    data: {{name: jsonl, path: sft.jsonl}}
    model: {{base: "${{vars.base}}"}}
    algorithm: sft
    max_prompt_tokens: 32
    max_tokens: 64
    train: {{lr: 1e-3, batch_size: 4, epochs: 1, accelerator: cpu, devices: 1}}
  fast:
    name: finetune
    data: {{name: jsonl, path: sft.jsonl}}
    model: {{base: "${{vars.base}}"}}
    algorithm: sft
    max_prompt_tokens: 32
    max_tokens: 64
    train: {{lr: 3e-2, batch_size: 4, epochs: 3, accelerator: cpu, devices: 1}}
  sft:
    name: select
    prompts: {{name: lines, path: topics.txt, limit: 12}}
    models: {{base: "${{vars.base}}", slow: "${{out:slow}}", fast: "${{out:fast}}"}}
    among: [slow, fast]
    baseline: base
    metrics: [{{name: elo_by_rule, title: elo, rule: "${{vars.rule}}"}}]
    best: {{number: elo.win_rate}}
    sampling: {{max_new_tokens: 12, temperature: 1.0}}
  evaluate:
    name: evaluate
    prompts: {{name: lines, path: topics.txt, skip: 12, limit: 12}}
    models: {{base: "${{vars.base}}", slow: "${{out:slow}}", sft: "${{out:sft}}"}}
    baseline: base
    metrics:
      - {{name: elo_by_rule, title: elo_rule, rule: "${{vars.rule}}", ridge: 0.1}}
      - {{name: elo, client: {{name: replay, answers: judge.jsonl}}, prompt: {prompt}, ridge: 0.1}}
    sampling: {{max_new_tokens: 12, temperature: 0.8, top_p: 0.95}}
"""


def test_a_grid_is_decided_by_elo_and_the_models_are_rated(tmp_path: Path, steady_model_dir: Path) -> None:
    prompt = Path(__file__).resolve().parents[2] / "prompts" / "judge_choice.txt"
    recipe, runs = tmp_path / "grid.yaml", ["--runs", tmp_path / "runs"]
    recipe.write_text(GRID.format(base=json.dumps(str(steady_model_dir)), prompt=json.dumps(str(prompt))))
    topics = [f"{first} {second}" for first in ("rivers", "lamps", "birds", "bread") for second in "abcdef"]
    (tmp_path / "topics.txt").write_text("\n".join(topics))
    (tmp_path / "judge.jsonl").write_text(json.dumps({"any": True, "answer": "1"}) + "\n")
    lines = [
        {"id": str(n), "prompt": topic, "responses": [{"text": "eel een eye tree"}]} for n, topic in enumerate(topics)
    ]
    (tmp_path / "sft.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert estimates(plan(recipes.load(recipe), tmp_path / "runs"))["evaluate"]["calls"]["calls"] == 3 * 12
    done = fgrl("run", recipe, *runs)
    assert done.exit_code == 0, done.output + str(done.exception)
    (record,) = (tmp_path / "runs" / "stages").glob("sft-*/stage.json")
    summary = json.loads(record.read_text())["summary"]
    rates = {name: summary["measured"][f"{name}/elo.win_rate"] for name in ("base", "slow", "fast")}
    assert summary["chosen"] == max(("slow", "fast"), key=lambda name: rates[name])
    # the faster one won every game: its rating is missing, which is said, and the other candidate is chosen
    again = fgrl("run", recipe, *runs, "--only", "sft", "stages.sft.best.number=elo.rating")
    assert again.exit_code == 0, again.output
    assert (
        "warning: fast cannot be chosen, its elo.rating is missing: it won all of its 24 decided games" in again.output
    )
    assert "slow: elo.rating 1500" in again.output.replace(",", "")
    tables = json.loads(fgrl("elo", recipe, *runs, "--json").stdout)["tables"]
    assert [(table["source"], table["title"]) for table in tables] == [
        ("grid, sft", "elo"), ("grid, evaluate", "elo_rule"), ("grid, evaluate", "elo"),
    ]  # fmt: skip
    judged = next(table for table in tables if table["title"] == "elo" and table["source"] == "grid, evaluate")
    assert "36 games judged by judge" in judged["about"]
    assert {own["chose_first"]["mean"] for own in judged["models"]} == {1.0}
    assert "chose_first" in fgrl("elo", recipe, *runs, "--stage", "evaluate").stdout
    # what people are to compare, and their verdicts
    pairs = tmp_path / "pairs.jsonl"
    written = fgrl("elo", recipe, *runs, "--stage", "evaluate", "--write-pairs", pairs, "--comparisons", 20)
    assert written.exit_code == 0, written.output
    samples = list(read_jsonl(pairs, Sample))
    judged_by_people = [
        sample.model_copy(
            update={"verdicts": [PairVerdict(first=0, second=1, verdict="tie" if n % 3 else "first", by="ada")]}
        )
        for n, sample in enumerate(samples)
    ]
    write_jsonl(pairs, judged_by_people)
    (table,) = json.loads(fgrl("elo", pairs, "--ridge", 0.1, "--json").stdout)["tables"]
    assert ("20 games judged by ada" in table["about"], len(table["models"])) == (True, 3)
    several = fgrl("elo", recipe, *runs, "--write-pairs", pairs)
    assert several.exit_code == 2 or "wants one finished evaluation with answers, there are 2" in str(several.exception)


@pytest.mark.parametrize(
    ("among", "said"),
    [("[slow, fats]", "among: 'fats' is not one of `models`: base, slow, fast"), ("[]", "among: nothing to select")],
)
def test_candidates_are_checked_with_the_recipe(among: str, said: str, tmp_path: Path) -> None:
    recipe = tmp_path / "grid.yaml"
    text = GRID.format(base="nobody/nothing", prompt="judge.jsonl").replace("[slow, fast]", among)
    recipe.write_text(text)
    for name in ("topics.txt", "judge.jsonl", "sft.jsonl"):
        (tmp_path / name).write_text("")
    assert said in fgrl("validate", recipe).output


def test_nothing_to_show_names_what_makes_ratings(tmp_path: Path) -> None:
    recipe = people(tmp_path)
    done = fgrl("elo", recipe, "--runs", tmp_path / "runs")
    assert "no finished stage has Elo ratings" in str(done.exception)
    assert "not run: rated; fgrl run" in str(done.exception)


def test_from_pairs_over_the_annotation_page_to_a_table(tmp_path: Path) -> None:
    """Two people on the page; the left response always wins, so the table has a position bias."""
    pairs = to_compare(answers(3, 6), 12)
    settings = load_settings("retrieval_ab")
    with Store.create(tmp_path / "games.sqlite", pairs, settings, ["ada", "bob"], overlap=len(pairs)) as store:
        for number, (item, person) in enumerate((item, person) for item in store.items for person in ("ada", "bob")):
            order = [0, 1] if number % 3 else [1, 0]
            store.append(item, person, "order", "", {"order": order}, 0)
            better = None if number == 0 else order[0] if number < 20 else order[1]
            store.append(item, person, "verdict", "", {"better": better, "reason": "shorter"}, 0)
            store.append(item, person, "done", "", {"done": True}, 0)
        write_jsonl(tmp_path / "people.jsonl", exported(store))
    (table,) = json.loads(fgrl("elo", tmp_path / "people.jsonl", "--json").stdout)["tables"]
    assert "24 games judged by ada, bob, 2 of them without a verdict" in table["about"] or "24 games" in table["about"]
    assert {own["model"] for own in table["models"]} == {"m0", "m1", "m2"}
    assert all(0 < own["chose_first"]["mean"] < 1 for own in table["models"])
    assert sum(own["ties"]["mean"] * own["ties"]["n"] for own in table["models"]) == pytest.approx(2)
