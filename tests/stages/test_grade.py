"""The stage that grades sets of spans: from a recipe to the numbers in a table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fgrl.cli import app
from fgrl.registry import Problems, build

TEXTS = {"a": "The old lamp, lit at night, stands.", "b": "No word of it is true.", "c": "A lamp. A door."}


def span(text: str, quote: str, label: float) -> dict[str, Any]:
    start = text.index(quote)
    return {"start": start, "end": start + len(quote), "label": label}


LEFT = {
    "a": [span(TEXTS["a"], "old lamp", 1), span(TEXTS["a"], "stands", -1)],
    "b": [span(TEXTS["b"], "No word of it", -1)],
    "c": [],
}
RIGHT = {
    "a": [span(TEXTS["a"], "old lamp", 1), span(TEXTS["a"], "lit at night", -1)],
    "b": [span(TEXTS["b"], "word of it is", -1)],
}


def write(path: Path, spans: dict[str, Any], by: str = "x", critique: str | None = None) -> None:
    lines = [
        {"id": id, "prompt": f"q {id}", "responses": [{"text": TEXTS[id], "annotations": [{"by": by, "spans": own, "critique": critique}]}]}
        for id, own in spans.items()
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)))


def run(folder: Path, stage: dict[str, Any], *command: str) -> Result:
    (folder / "recipe.yaml").write_text(
        json.dumps({"about": "Grades.", "stages": {"grade": {"name": "grade"} | stage}})
    )
    return CliRunner().invoke(
        app, [*(command or ("run",)), str(folder / "recipe.yaml"), "--runs", str(folder / "runs")]
    )


def metrics(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "runs" / "stages").glob("grade-*/out/metrics.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    write(tmp_path / "left.jsonl", LEFT)
    write(tmp_path / "right.jsonl", RIGHT)
    return tmp_path


def jsonl(name: str) -> dict[str, str]:
    return {"name": "jsonl", "path": name}


def test_two_sets_in_words_with_reference_lines(sets: Path) -> None:
    stage = {
        "left": jsonl("left.jsonl"),
        "right": {"critic": jsonl("right.jsonl")},
        "lines": ["all_neutral", "shuffled"],
    }
    done = run(sets, stage)
    assert done.exit_code == 0, done.output + str(done.exception)
    found = metrics(sets)
    assert found["baseline"] == "critic_shuffled"
    words = found["metrics"]["words"]
    critic = {name: number["mean"] for name, number in words["critic"].items()}
    # a: right marks 2 good words (both right) and 3 poor ones (none right), left has 1 poor; b: 3 of 4 on both sides
    assert (critic["positive_precision"], critic["positive_recall"]) == (1, 1)
    assert critic["negative_precision"] == pytest.approx(3 / 7)
    assert critic["negative_recall"] == pytest.approx(3 / 5)
    assert critic["negative_overlap_index"] == pytest.approx(3 / 9)
    assert critic["missing"] == pytest.approx(1 / 3)
    # by its labels b is bad, and a and c are neither; right marks 7 words as poor, of which 3 are; left marks 5
    assert (critic["negative_in_bad"], critic["missing_bad"]) == (1, 0)
    assert (critic["negative_in_good"], critic["missing_good"]) == (None, None)
    words_of_both = sum(len(re.findall(r"\w+|[^\w\s]", TEXTS[name])) for name in "ab")
    assert critic["negative_precision_gain"] == pytest.approx(3 / 7 - 5 / words_of_both)
    assert words["all_neutral"]["negative_recall"]["mean"] == 0
    assert words["all_neutral"]["negative_precision"]["mean"] is None
    assert words["all_neutral"]["neutral"]["mean"] == 1
    assert words["critic_shuffled"]["neutral"]["mean"] == pytest.approx(critic["neutral"])
    spans = {name: number["mean"] for name, number in found["metrics"]["spans"]["critic"].items()}
    assert [spans[f"positive_{name}"] for name in ("left", "right", "exact", "partial")] == [1, 1, 1, 0]
    assert [spans[f"negative_{name}"] for name in ("left", "right", "exact", "partial")] == [2, 2, 0, 1]
    assert spans["positive_overlap_90"] == 1
    assert spans["negative_overlap_90"] == 0
    lengths = found["metrics"]["span_lengths"]
    assert lengths["left"]["negative_max"]["mean"] == 4
    assert lengths["critic"]["positive_mean"]["mean"] == 2
    assert found["metrics"]["span_accuracy"]["critic"]["negative_all"]["mean"] == 0.5
    (record,) = (sets / "runs" / "stages").glob("grade-*/stage.json")
    summary = json.loads(record.read_text())["summary"]
    assert (summary["responses"], summary["critic: missing"]) == (3, 1)
    (lines,) = (sets / "runs" / "stages").glob("grade-*/out/graded.jsonl")
    assert json.loads(lines.read_text().splitlines()[2])["right"] == {
        "critic": None, "all_neutral": [], "critic_shuffled": None
    }  # fmt: skip
    table = CliRunner().invoke(
        app, ["table", str(sets / "recipe.yaml"), "--runs", str(sets / "runs"), "--number", "words.negative_precision"]
    )
    assert "0.43" in table.stdout or "0.429" in table.stdout, table.output


def test_tokens_of_a_model(sets: Path, tiny_model_dir: Path) -> None:
    stage = {"left": jsonl("left.jsonl"), "right": {"same": jsonl("left.jsonl")}, "policy": str(tiny_model_dir)}
    done = run(sets, stage)
    assert done.exit_code == 0, done.output + str(done.exception)
    tokens = metrics(sets)["metrics"]["tokens"]
    assert str(tiny_model_dir) in tokens["about"]
    assert tokens["same"]["positive_f1"]["mean"] == tokens["same"]["negative_recall"]["mean"] == 1


def test_code_has_labels_of_its_own(sets: Path) -> None:
    write(sets / "code.jsonl", {"b": [span(TEXTS["b"], "No word", -1), span(TEXTS["b"], "true", 0)]})
    stage: dict[str, Any] = {
        "left": jsonl("code.jsonl"), "right": {"same": jsonl("code.jsonl")}, "units": "characters",
        "labels": {"wrong": -1.0, "improvable": 0.0},
    }  # fmt: skip
    done = run(sets, stage)
    assert done.exit_code == 0, done.output + str(done.exception)
    characters = metrics(sets)["metrics"]["characters"]["same"]
    assert characters["improvable_recall"]["mean"] == 1
    assert characters["neutral"]["mean"] == pytest.approx(1 - 11 / len(TEXTS["b"]))


def test_nothing_in_common_is_an_error(sets: Path) -> None:
    (sets / "other.jsonl").write_text(
        json.dumps({"id": "z", "prompt": "q", "responses": [{"text": "t", "annotations": [{}]}]})
    )
    done = run(sets, {"left": jsonl("left.jsonl"), "right": {"other": jsonl("other.jsonl")}})
    assert done.exit_code != 0
    assert "none of its 1 annotated responses is among the 3 of the left side" in done.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": {}}, "nothing to grade"),
        ({"right": {"left": {}}}, "two rows would be called 'left'"),
        ({"right": {"x": {}, "x_shuffled": {}}, "lines": ["shuffled"]}, "two rows would be called 'x_shuffled'"),
        ({"units": "tokens"}, "name the model whose tokens are counted"),
        ({"labels": {"a": 1.0, "b": 1.0}}, "a different value for each"),
        ({"baseline": "nobody"}, 'baseline: no set "nobody"'),
    ],
)
def test_settings_that_fit_nothing_are_refused(sets: Path, change: dict[str, Any], message: str) -> None:
    reader = jsonl(str(sets / "left.jsonl"))
    stage: dict[str, Any] = {"name": "grade", "left": reader, "right": {"critic": reader}} | change
    stage["right"] = {name: part or dict(reader) for name, part in stage["right"].items()}
    with pytest.raises(Problems, match=message):
        build("stage", json.loads(json.dumps(stage)))


JUDGE_PROMPT = "{prompt}\n{response}\nFIRST {first}\nSECOND {second}"


def test_a_judge_compares_the_annotations(sets: Path) -> None:
    write(sets / "good.jsonl", LEFT, critique="sharp")
    write(sets / "dull.jsonl", LEFT, critique="dull")
    (sets / "judge.txt").write_text(JUDGE_PROMPT)

    def answer(first: float, second: float) -> dict[str, Any]:
        return {
            f"annotation_{place}": {"score": score, "clarity": 5, "why": "because"}
            for place, score in ((1, first), (2, second))
        }

    lines: list[dict[str, Any]] = [
        {"contains": ["q c"], "answer": answer(6, 6)},
        {"contains": ["q b"], "answer": "Both look fine."},
        {"contains": ['FIRST {\n "critique": "sharp"'], "answer": answer(9, 4)},
        {"any": True, "answer": answer(4, 9)},
    ]
    (sets / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    stage = {
        "left": jsonl("dull.jsonl"), "right": {"sharp": jsonl("good.jsonl")},
        "judge": {
            "client": {"name": "replay", "answers": "answers.jsonl"}, "prompt": "judge.txt", "criteria": ["clarity"], "tries": 1,
        },
    }  # fmt: skip
    planned = run(sets, stage, "plan", "--json")
    assert json.loads(planned.stdout)["stages"]["grade"]["estimate"]["calls"]["calls"] == 3, planned.output
    done = run(sets, stage)
    assert done.exit_code == 0, done.output + str(done.exception)
    judged = {name: number["mean"] for name, number in metrics(sets)["metrics"]["judged"]["sharp"].items()}
    assert (judged["win"], judged["tie"], judged["loss"], judged["win_rate"]) == (0.5, 0.5, 0, 0.75)
    assert (judged["score"], judged["versus_score"], judged["clarity"]) == (7.5, 5, 5)
    assert judged["unparsed"] == pytest.approx(1 / 3)
    (said,) = (sets / "runs" / "stages").glob("grade-*/out/judgements.jsonl")
    assert [json.loads(line).get("failure") for line in said.read_text().splitlines()] == [None, "unreadable", None]


def test_what_a_language_model_quoted_is_graded_with_its_unmatched_rate(sets: Path) -> None:
    """Two critics annotate the same responses, and one of them quotes something that is not there."""
    critiques = {
        "good": {"textual_feedback": "x", "good_spans": ["old lamp"], "poor_spans": ["stands"]},
        "wild": {"textual_feedback": "x", "good_spans": ["old lamp", "a red door"], "poor_spans": []},
    }
    (sets / "critic.txt").write_text("{prompt} {response}")
    (sets / "one.jsonl").write_text(json.dumps({"id": "a", "prompt": "q", "responses": [{"text": TEXTS["a"]}]}))
    stages: dict[str, Any] = {}
    for name, critique in critiques.items():
        (sets / f"{name}.jsonl").write_text(json.dumps({"any": True, "answer": critique}))
        client = {"name": "replay", "answers": f"{name}.jsonl"}
        annotator = {
            "name": "dual_feedback",
            "client": client,
            "prompt": "critic.txt",
            "tries": 1,
            "max_unmatched": 1.0,
        }
        stages[name] = {
            "name": "annotate", "data": {"name": "jsonl", "path": "one.jsonl"}, "annotator": annotator, "max_missing": 1.0
        }  # fmt: skip
    sides = {name: {"name": "samples", "of": f"${{out:{name}}}"} for name in critiques}
    stages["grade"] = {"name": "grade", "left": sides["good"], "right": {"wild": sides["wild"]}}
    (sets / "recipe.yaml").write_text(json.dumps({"about": "Critics.", "stages": stages}))
    done = CliRunner().invoke(app, ["run", str(sets / "recipe.yaml"), "--runs", str(sets / "runs")])
    assert done.exit_code == 0, done.output + str(done.exception)
    found = metrics(sets)["metrics"]
    assert found["spans"]["wild"]["unmatched"]["mean"] == 0.5
    assert found["words"]["wild"]["positive_f1"]["mean"] == 1
    assert found["words"]["wild"]["negative_recall"]["mean"] == 0
