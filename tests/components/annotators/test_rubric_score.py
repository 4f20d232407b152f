"""Scores of responses by their rubric, the best of them, and pairs of two stages' answers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from training_helpers import a_run
from typer.testing import CliRunner

from fgrl.base.errors import DataError
from fgrl.cli import app
from fgrl.components.annotators.rubric_score import RubricScore
from fgrl.components.readers.versus import Versus
from fgrl.kinds import Judge
from fgrl.types import Criterion, Response, Sample, write_jsonl

LAMP = Criterion(text="lamp", check={"name": "keywords:existence", "keywords": ["lamp"]})
COMMA = Criterion(text="no comma", check={"name": "punctuation:no_comma"})
SOFT = Criterion(text="kind")


def sample(number: int, *texts: str, rubric: tuple[Criterion, ...] = (LAMP, COMMA), **more: Any) -> Sample:
    return Sample(
        id=str(number), prompt="?", rubric=list(rubric), responses=[Response(text=text) for text in texts], **more
    )


def scored(tmp_path: Path, samples: list[Sample], **fields: Any) -> tuple[list[Sample], dict[str, Any]]:
    annotator = RubricScore(**fields)
    annotator.setup(a_run(tmp_path))
    before = [one.model_copy(deep=True) for one in samples]
    found = annotator.annotate(samples)
    assert samples == before, "never changed in place"
    return found, annotator.counts()


class Guess(Judge):
    """Says what the response's first letter says."""

    def decide(self, cases: Any) -> list[bool | None]:
        return [{"y": True, "n": False}.get(text[:1]) for _sample, text, _criterion in cases]

    def setup(self, run: Any) -> None: ...


@pytest.mark.parametrize(("score", "expected"), [("csr", [1.0, 0.5, 0.5, 0.0]), ("aon", [1.0, 0.0, 0.0, 0.0])])
def test_scores(score: str, expected: list[float], tmp_path: Path) -> None:
    (found,), counts = scored(tmp_path, [sample(0, "a lamp", "a lamp, lit", "dark", "dark, so")], score=score)
    assert [one.score for one in found.responses] == expected
    assert counts["mean score"] == pytest.approx(sum(expected) / 4)
    assert found.chosen is None


def test_the_first_of_the_best_becomes_the_response(tmp_path: Path) -> None:
    samples = [sample(0, "dark", "a lamp", "lamp"), sample(1, "dark, so", ""), sample(2, rubric=(LAMP,))]
    found, counts = scored(tmp_path, samples, best=True)
    assert [one.chosen_response.text for one in found] == ["a lamp", "dark, so"]
    assert [(one.chosen, len(one.responses)) for one in found] == [(1, 3), (0, 2)], "the others stay"
    assert counts["dropped"] == 1, "no responses, no best"
    found, counts = scored(tmp_path, samples, best=True, least=0.5)
    assert [one.chosen_response.text for one in found] == ["a lamp"]


@pytest.mark.parametrize(("score", "expected"), [("csr", [1.0, 0.5, None]), ("aon", [1.0, 0.0, 0.0])])
def test_a_missing_verdict_is_no_score(score: str, expected: list[float | None], tmp_path: Path) -> None:
    one = sample(0, "yes lamp", "no lamp", "perhaps", rubric=(LAMP, SOFT))
    (found,), counts = scored(tmp_path, [one], score=score, judge=Guess())
    assert [response.score for response in found.responses] == expected
    assert counts["without a score"] == expected.count(None)


def test_a_judge_that_fails_leaves_the_stage_unfinished(tmp_path: Path) -> None:
    """Scores that nobody gave are not kept as if they were the data's."""
    (tmp_path / "answers.jsonl").write_text(json.dumps({"any": True, "error": "the endpoint is down"}) + "\n")
    (tmp_path / "judge.txt").write_text("<{response}> <{criterion}>")
    write_jsonl(tmp_path / "samples.jsonl", [sample(0, "yes lamp", "no lamp", rubric=(LAMP, SOFT))])
    judge = {"name": "llm", "client": {"name": "replay", "answers": "answers.jsonl"}, "prompt": "judge.txt"}
    scores = {"name": "rubric_score", "judge": judge}
    stage = {"name": "annotate", "data": {"name": "jsonl", "path": "samples.jsonl"}, "annotator": scores}
    recipe = tmp_path / "scores.yaml"
    recipe.write_text(json.dumps({"about": "Scores.", "stages": {"scored": stage}}))
    done = CliRunner().invoke(app, ["run", str(recipe), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 3, done.output
    assert "2 of 2 questions got no answer" in done.output
    (tmp_path / "answers.jsonl").write_text(json.dumps({"any": True, "answer": "YES"}) + "\n")
    done = CliRunner().invoke(app, ["run", str(recipe), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output


def test_soft_criteria_need_a_judge(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sample 0: no verifier decides 'kind'"):
        scored(tmp_path, [sample(0, "x", rubric=(SOFT,))])


def test_pairs_of_two_stages(tmp_path: Path) -> None:
    strong = [sample(0, "a", "good", chosen=1), sample(1, "b"), sample(2, "same"), sample(3, "only here"), sample(4)]
    weak = [sample(2, "same"), sample(1, "c", "d"), sample(0, "bad"), sample(5, "only there"), sample(4, "x")]
    for name, records in (("strong", strong), ("weak", weak)):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "samples.jsonl", records)
    said: list[str] = []
    run = SimpleNamespace(path=lambda ref: tmp_path / ref.stage, say=said.append)
    reader = Versus(better="${out:strong}", worse="${out:weak}")  # type: ignore[arg-type]
    reader.setup(run)
    assert [(pair.id, pair.chosen, pair.rejected) for pair in reader.pairs()] == [("0", "good", "bad"), ("1", "b", "c")]
    assert said == ["versus: 2 pairs; 2 prompts only one side has; 2 with the same answer twice or none"]
    with pytest.raises(DataError, match="pairs, not samples"):
        next(reader.read())


def test_a_prompt_that_is_there_twice_makes_no_pair_by_chance(tmp_path: Path) -> None:
    for name, records in (("strong", [sample(0, "a"), sample(0, "b")]), ("weak", [sample(0, "c")])):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "samples.jsonl", records)
    reader = Versus(better="${out:strong}", worse="${out:weak}")  # type: ignore[arg-type]
    reader.setup(SimpleNamespace(path=lambda ref: tmp_path / ref.stage, say=print))
    with pytest.raises(DataError, match="two samples '0'"):
        list(reader.pairs())
