"""Candidates, a judge, pairs: what `fgrl plan` says of the judge's calls, and what they then take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_recipe import a_run
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.components.annotators.mark_by_rules import MarkByRules
from fgrl.components.readers.jsonl import JsonLines
from fgrl.experiments.stages import annotate
from fgrl.experiments.stages.annotate import AnnotateStage
from fgrl.types import Criterion, Pairs, Response, Sample, Samples, write_jsonl

RECIPE = """
about: "Pairs from a judge."
seed: 5
stages:
  candidates:
    name: sample
    prompts: {{name: lines, path: topics.txt, limit: 6}}
    model: {model}
    per_prompt: 3
    sampling: {{max_new_tokens: 5}}
  verdicts:
    name: annotate
    data: {{name: samples, of: "${{out:candidates}}"}}
    annotator:
      name: preference
      client: {client}
      prompt: judge.txt
      verdict: {verdict}
  pairs:
    name: pair
    data: {{name: samples, of: "${{out:verdicts}}"}}
    builder: judged
"""
LOCAL = "{{name: local, model: {model}}}"
REPLAY = "{name: replay, answers: answers.jsonl}"


def write(folder: Path, model: Path, *, client: str, verdict: str) -> Path:
    (folder / "topics.txt").write_text("\n".join(f"lamp {n}" for n in range(9)))
    (folder / "judge.txt").write_text("[user]\nQ {question}\nA {first}\nB {second}\nWhich?\n")
    (folder / "answers.jsonl").write_text('{"contains": "lamp 2", "answer": "tie"}\n{"any": true, "answer": "1"}\n')
    path = folder / "judged.yaml"
    path.write_text(RECIPE.format(model=json.dumps(str(model)), client=client, verdict=verdict))
    return path


def data(folder: Path) -> str:
    """Verdicts on samples of a file."""
    return f"stages.verdicts.data={{name: jsonl, path: {folder / 'samples.jsonl'}}}"


def call(*arguments: object) -> Any:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.stdout


def planned(recipe: Path, *more: object) -> dict[str, Any]:
    return json.loads(call("plan", recipe, "--runs", recipe.parent / "runs", "--json", *more))["stages"]


def out(recipe: Path, stage: str) -> Path:
    return next((recipe.parent / "runs" / "stages").glob(f"{stage}-*")) / "out"


def run(recipe: Path, *more: object) -> dict[str, Any]:
    return json.loads(call("run", recipe, "--runs", recipe.parent / "runs", "--json", "-q", *more))


def test_the_plan_of_a_local_judge_is_what_the_ledger_says_then(tmp_path, tiny_model_dir):
    client = LOCAL.format(model=json.dumps(str(tiny_model_dir)))
    recipe = write(tmp_path, tiny_model_dir, client=client, verdict="logprobs")

    before = planned(recipe)
    estimate = before["verdicts"]["estimate"]
    assert estimate["calls"] == {"at most": 6 * 3 * 2, "after": "candidates"}
    assert estimate["memory"]["answers"] == {"weights": 4 * estimate["parameters"]["answers"]["total"]}
    assert "estimate" not in before["pairs"]
    assert "verdicts: calls: at most 36, their tokens and price unknown: candidates has to run first" in call(
        "plan", recipe, "--runs", tmp_path / "runs"
    )
    limited = planned(recipe, "--limit", 2)["verdicts"]["estimate"]["calls"]
    assert limited == {"at most": 2 * 3 * 2, "after": "candidates"}

    run(recipe, "--only", "candidates")
    told = planned(recipe)["verdicts"]["estimate"]["calls"]
    assert not (tmp_path / "runs" / "cache" / "completions.sqlite").exists(), "a plan writes nothing"
    line = f"verdicts: calls: {told['calls']} to make, {told['prompt tokens']:,} prompt tokens, at most"
    assert line in call("plan", recipe, "--runs", tmp_path / "runs")

    run(recipe, "--only", "verdicts")
    ledger = [json.loads(row) for row in (out(recipe, "verdicts").parent / "calls.jsonl").read_text().splitlines()]
    assert told == {
        "calls": len(ledger), "cached": 0, "prompt tokens": sum(row["prompt_tokens"] for row in ledger),
        "completion tokens": sum(row["completion_tokens"] for row in ledger), "usd": 0.0,
    }  # fmt: skip
    assert told["calls"] > 20
    samples = list(Samples(out(recipe, "verdicts")).read())
    judged = [verdict for sample in samples for verdict in sample.verdicts]
    assert 2 * len(judged) == told["calls"]

    # another stage that asks the same of the same model finds it answered
    again = planned(recipe, "stages.verdicts.annotator.disagreement=drop")["verdicts"]["estimate"]["calls"]
    assert again == {"calls": 0, "cached": len(ledger), "prompt tokens": 0, "completion tokens": 0, "usd": 0.0}


def test_verdicts_from_a_file_become_pairs(tmp_path, tiny_model_dir):
    recipe = write(tmp_path, tiny_model_dir, client=REPLAY, verdict="text")
    run(recipe, "--only", "candidates")
    told = planned(recipe, "stages.verdicts.annotator.orders=one")["verdicts"]["estimate"]["calls"]
    summary = run(recipe, "stages.verdicts.annotator.orders=one")["stages"]["verdicts"]["summary"]
    samples = list(Samples(out(recipe, "verdicts")).read())
    verdicts = [(sample, verdict) for sample in samples for verdict in sample.verdicts]
    assert told["calls"] == summary["questions"] == len(verdicts)
    assert summary["position bias"] == 1.0
    assert summary["ties"] == sum("lamp 2" in sample.prompt for sample, _ in verdicts) > 0
    pairs = list(Pairs(out(recipe, "pairs")).read())
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [
        (sample.responses[verdict.first].text, sample.responses[verdict.second].text)
        for sample, verdict in verdicts
        if "lamp 2" not in sample.prompt
    ]


def test_data_that_cannot_be_read_leaves_the_plan_readable(tmp_path, tiny_model_dir):
    recipe = write(tmp_path, tiny_model_dir, client=REPLAY, verdict="text")
    (tmp_path / "samples.jsonl").write_text("no json\n")
    found = planned(recipe, data(tmp_path))["verdicts"]["estimate"]["calls"]
    assert "samples.jsonl:1" in found["unknown"]


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("null", "price unknown"),
        ("{prompt: 1000, completion: 2000}", "at most $"),
        ("{prompt: 0, completion: 0}", "no charge"),
    ],
)
def test_the_price_of_an_endpoint(tmp_path, tiny_model_dir, price, said):
    sample = {"id": "a", "prompt": "which?", "responses": [{"text": "one"}, {"text": "two"}]}
    (tmp_path / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    client = f"{{name: openai, model: nobody-knows-it, base_url: 'http://127.0.0.1:9/v1', prices: {price}}}"
    recipe = write(tmp_path, tiny_model_dir, client=client, verdict="text")
    told = planned(recipe, data(tmp_path))["verdicts"]["estimate"]["calls"]
    assert (told["calls"], told["completion tokens"]) == (2, 8)
    usd = {"null": None, "{prompt: 1000, completion: 2000}": (told["prompt tokens"] * 1000 + 8 * 2000) / 1e6}.get(
        price, 0.0
    )
    assert told["usd"] == (None if usd is None else pytest.approx(usd))
    assert said in call("plan", recipe, "--runs", tmp_path / "runs", data(tmp_path))


@pytest.mark.parametrize("max_all", [None, 0.5])
def test_rules_mark_some_samples_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_all: float | None
) -> None:
    """Where no share of all labels is asked for; the product and the counts are those of one pass."""
    rubric = [Criterion(text="No comma.", check={"name": "punctuation:no_comma"}), Criterion(text="Nice.")]
    texts = ["a, b", "no", "one, two, three", "", "fine"]
    rows = [
        Sample(id=str(i), prompt="p", responses=[Response(text=text)], rubric=rubric) for i, text in enumerate(texts)
    ]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    stage = AnnotateStage(data=JsonLines(path=str(tmp_path / "rows.jsonl")), annotator=MarkByRules(max_all=max_all))
    sizes: list[int] = []
    whole = MarkByRules.annotate

    def counted(self: MarkByRules, samples: Sequence[Sample]) -> list[Sample]:
        sizes.append(len(samples))
        return whole(self, samples)

    monkeypatch.setattr(MarkByRules, "annotate", counted)
    results = []
    for size in (1000, 2):
        monkeypatch.setattr(annotate, "SLICE", size)
        run = a_run(tmp_path / str(size))
        results.append((stage.run(run), (run.out / "samples.jsonl").read_bytes()))
    assert results[0] == results[1]
    assert results[0][0]["without a check"] == 4
    assert sizes == ([5, 2, 2, 1] if max_all is None else [5, 5])
