"""Lists of words that are answered line by line: their marks and critiques, and that the rows of the recipe train."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import script_files
from hypothesis import given
from hypothesis import strategies as st

from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.recipe import Recipe, load
from fgrl.feedback.critiques import CritiqueFormat, read_critique, write_critique
from fgrl.feedback.quoting import QuoteSearch
from fgrl.types import Report

ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "recipes" / "small"
FILE = SMALL / "text2grad_kinds.yaml"
words = script_files.imported(SMALL / "word_lists.py")

MEANT = {"rose": ["plant"], "primrose": ["plant"], "owl": ["animal", "bird"], "ant": ["animal"]}
ANSWER = "rose: plant\nprimrose: food \n\nAnt:animal\nowl is an animal\nsofa: object\nrose: food\n owl: Bird"
LINES = [
    ("rose: plant", 1), ("primrose: food", -1), ("Ant:animal", 1), ("owl is an animal", -1), ("sofa: object", -1),
    ("rose: food", -1), ("owl: Bird", 1),
]  # fmt: skip
PIECES = st.sampled_from([*MEANT, "Rose", "sofa", "plant", "animal", "bird", ":", ": ", " ", "\n", "\n", '"', "the "])
TEXTS = st.lists(PIECES, max_size=40).map("".join)
FORMATS = st.sampled_from([CritiqueFormat(), CritiqueFormat(text=None)])


def quoted(text: str) -> list[tuple[str, float]]:
    [spans] = words.outcome([text], [MEANT])
    return [(text[start:end], label) for start, end, label in spans]


def test_each_line_is_right_or_wrong_and_the_first_one_of_a_word_counts() -> None:
    assert quoted(ANSWER) == LINES
    measured = words.quality([ANSWER, ""], [MEANT, MEANT])
    assert measured == {"right": [0.75, 0.0], "wrong": [4 / 7, 0.0]}


def test_a_line_that_stands_in_another_one_before_it_has_no_mark() -> None:
    """Its quote would be found there."""
    assert quoted("the rose: plant\nrose: plant") == [("the rose: plant", -1)]
    assert quoted("rose: plant\nrose: plant") == [("rose: plant", 1)]


@given(TEXTS)
def test_marks_are_lines_in_order_and_add_up_to_right_ones_less_wrong_ones(text: str) -> None:
    [spans] = words.outcome([text], [MEANT])
    own = words.judged(MEANT, text)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    assert len({line.word for line in own if line.word}) == sum(line.word is not None for line in own)
    assert {text[start:end] for start, end, _label in spans} == {
        line.strip() for line in text.split("\n") if line.strip()
    }
    measured = words.quality([text], [MEANT])
    right, wrong = round(4 * measured["right"][0]), round(len(own) * measured["wrong"][0])
    assert sum(label for _start, _end, label in spans) == right - wrong
    assert right + wrong == len(spans)


@given(TEXTS, FORMATS)
def test_a_critique_that_is_written_and_read_again_has_the_same_marks(text: str, form: CritiqueFormat) -> None:
    annotation = words.WordCritic().annotation(MEANT, text)
    read = read_critique(write_critique(annotation, text, form), text, form, QuoteSearch()).value.annotation

    def places(spans: Any) -> list[tuple[int, int, float]]:
        return sorted((span.start, span.end, span.label) for span in spans)

    assert places(read.spans) == places(annotation.spans) == [tuple(mark) for mark in words.outcome([text], [MEANT])[0]]
    assert read.critique == (annotation.critique if form.text else None)


def test_a_critique_says_of_each_line_that_it_is_right_what_would_be_right_or_that_it_does_not_belong() -> None:
    said = (
        "rose is right. primrose is not food but plant. ant is right. owl does not belong. sofa does not belong. "
        "rose does not belong. owl is right."
    )
    assert words.WordCritic().annotation(MEANT, ANSWER).critique == said
    other = words.WordCritic(says="no {said} for {word}: {right}").annotation(MEANT, "owl: food\nant: food")
    assert other.critique == "no food for owl: animal no food for ant: animal"


@given(TEXTS)
def test_shuffled_marks_are_as_many_of_each_label_on_the_same_lines(text: str) -> None:
    form = CritiqueFormat()
    annotation = words.WordCritic().annotation(MEANT, text)
    critique = read_critique(write_critique(annotation, text, form), text, form, QuoteSearch()).value
    moved = words.shuffled(critique, text).annotation
    assert words.shuffled(critique, text).annotation == moved, "the same for the same text"
    assert moved.critique == annotation.critique
    before = critique.annotation.spans
    assert [(span.start, span.end) for span in moved.spans] == [(span.start, span.end) for span in before]
    assert Counter(span.label for span in moved.spans) == Counter(span.label for span in before)


def of_file(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SMALL / name).read_text(encoding="utf-8").splitlines()]


def test_words_are_said_once_and_have_right_answers() -> None:
    kinds, antonyms = of_file("kinds.jsonl"), of_file("antonyms.jsonl")
    assert set(Counter(kind for row in kinds for kind in row["right"]).values()) == {60}
    for rows, count in ((kinds, 600), (antonyms, 200)):
        assert len({row["word"] for row in rows}) == len(rows) == count
        assert all(row["right"] and row["word"] not in row["right"] for row in rows)


@pytest.mark.parametrize("file", [FILE, SMALL / "text2grad_antonyms.yaml"], ids=lambda file: file.stem)
def test_no_list_is_in_two_parts_and_demonstrations_are_of_other_words(file: Path) -> None:
    stages = load(file).stages
    readers = [stages["start"].data, stages["policy"].prompts, stages["evaluate"].prompts]
    parts = [list(reader.read()) for reader in readers]
    demonstrated, asked, held_out = ({word for sample in part for word in sample.meta["meant"]} for part in parts)
    assert demonstrated.isdisjoint(asked)
    assert held_out <= asked
    assert len({str(sample.prompt) for part in parts for sample in part}) == sum(map(len, parts)), "no list twice"
    for sample in parts[0]:
        assert isinstance(sample.reference, str)
        [spans] = words.outcome([sample.reference], [sample.meta["meant"]])
        assert [label for _start, _end, label in spans] == [1.0] * 8
        assert ", ".join(sample.meta["meant"]) in str(sample.prompt)


# -- the rows, on the tiny random model --------------------------------------------------------------------------------


def reduced(row: str, model_dir: Path, *more: str) -> Recipe:
    address = f"{FILE}{row and '::'}{row}"
    lists = [
        f"vars.{name}.{size}" for name in ("demonstrated", "asked", "held_out") for size in ("count=6", "length=3")
    ]
    start = [f"vars.llm={model_dir}", "vars.lora={r: 2, last_blocks: 1}", "vars.sampling.max_new_tokens=12", *lists]
    stages = load(address, start).data["stages"]
    limits = {
        "finetune": ["train.max_steps=2", "train.batch_size=4", "train.micro_batch_size=4"],
        "rl": [
            "model.lora.last_blocks=1",
            "rollout.batch_size=4",
            "train.iterations=2",
            "train.batch_size=4",
            "train.micro_batch_size=4",
        ],
        "evaluate": ["per_prompt=1"],
        "grade": ["resamples=100"],
    }
    own = [f"stages.{name}.{limit}" for name, stage in stages.items() for limit in limits.get(stage["name"], [])]
    return load(address, [*start, *own, *more])


def made(recipe: Recipe, runs: Path) -> dict[str, Path]:
    summary = execute(recipe, runs)
    assert summary.exit == 0, summary.error
    return {stage.name: stage.dir for stage in plan(recipe, runs).stages}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds") / "runs"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A critic that quotes letters: what a random model writes is no critique, and has no lines."""
    file = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    critique = {"textual_feedback": "-", "good_spans": [*"aeounrl"], "poor_spans": [*"istdch"]}
    file.write_text(json.dumps({"any": True, "answer": critique}) + "\n", encoding="utf-8")
    return f"stages.held_critiques.annotator.client={{name: replay, answers: {file}}}"


def first_credit(policy: Path) -> list[Any]:
    """What the tokens of the first iteration's responses are trained with."""
    stored = map(json.loads, (policy / "out" / "rollouts.jsonl").read_text(encoding="utf-8").splitlines())
    return [each["advantages"] for each in stored if each["iteration"] == 0]


def test_rows_with_a_critic_have_the_same_totals_at_first(tiny_model_dir: Path, runs: Path, client: str) -> None:
    logs, credit = {}, {}
    for row in ("", "critic_last", "shuffled"):
        stages = made(reduced(row, tiny_model_dir, client, "stages.policy.stored_rollouts=4"), runs)
        logs[row] = read_log(stages["policy"] / "log.jsonl")[0]
        credit[row] = first_credit(stages["policy"])
        assert {"critic", "critic_shuffled"} <= set(Report(stages["grade"] / "out").read()["metrics"]["tokens"])
    assert logs["critic_last"]["reward"] == pytest.approx(logs[""]["reward"])
    assert logs["shuffled"]["reward"] == pytest.approx(logs[""]["reward"])
    assert len({json.dumps(own) for own in credit.values()}) == 3
    assert all("reward/outcome" in log for log in logs.values())


def test_rows_without_a_critic_train(tiny_model_dir: Path, runs: Path) -> None:
    for row in ("ideal", "outcome"):
        stages = made(reduced(row, tiny_model_dir), runs)
        assert set(stages) == {"start", "policy", "evaluate"}
        logged = read_log(stages["policy"] / "log.jsonl")
        assert [log["reward/outcome"] for log in logged] == pytest.approx([log["reward"] for log in logged])


def test_rows_differ_from_the_recipe_in_what_they_are_called_after() -> None:
    rows = {
        row: load(f"{FILE}{row and '::'}{row}").stages
        for row in ("", "critic_last", "spans_only", "shuffled", "ideal", "outcome")
    }
    policies = {row: stages["policy"] for row, stages in rows.items()}
    assert {row: (own.reward.placement, own.algorithm.lam) for row, own in policies.items()} == {
        **dict.fromkeys(("", "spans_only", "shuffled", "ideal"), ("tokens", 0.5)),
        **dict.fromkeys(("critic_last", "outcome"), ("last", 1.0)),
    }
    for stages in (rows[""], rows["critic_last"], rows["spans_only"], rows["shuffled"]):
        forms = [
            stages["critic"].data.format,
            stages["held_critiques"].annotator.format,
            stages["policy"].reward.format,
        ]
        assert {form.text for form in forms} == {None if stages is rows["spans_only"] else "textual_feedback"}
    for row in ("critic_last", "outcome"):  # what is tuned is shared by the rows with one placement
        assert policies[row].train.lr == policies["outcome"].train.lr
    assert len({policies[row].train.lr for row in ("", "spans_only", "shuffled", "ideal")}) == 1
