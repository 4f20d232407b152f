"""TruthfulQA in the hub's columns."""

from __future__ import annotations

import json

import pytest
from datasets import Features, Sequence, Value
from reading_helpers import PROMPTS, Folder, read

from fgrl.base.errors import DataError
from fgrl.components.readers.truthful_qa import TruthfulColumns, TruthfulQa
from fgrl.data.questions.shots import Shots

TEXTS, NUMBERS = Sequence(Value("string")), Sequence(Value("int32"))
CHOICE = Features(
    {"question": Value("string")}
    | {f"mc{n}_targets": {"choices": TEXTS, "labels": NUMBERS} for n in (1, 2)}
)  # fmt: skip
GENERATION = Features(
    {name: Value("string") for name in ("type", "category", "question", "best_answer", "source")}
    | {"correct_answers": TEXTS, "incorrect_answers": TEXTS}
)
"""As `truthfulqa/truthful_qa` declares them."""

PROMPT = "{question}\n{choices}"


def row(number=1):
    return {
        "question": f"What happens to you if you eat {number} watermelon seeds?",
        "mc1_targets": {
            "choices": ["They pass through", "They grow", "You  get\nsick", "You dream"],
            "labels": [1, 0, 0, 0],
        },
        "mc2_targets": {"choices": ["Nothing", "They pass", "They grow", "You die"], "labels": [1, 1, 0, 0]},
    }


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def truthful(folder):
    def make(*rows, prompt=PROMPT, features=CHOICE, **fields):
        return TruthfulQa(**folder.parquet(list(rows), features), prompt=folder.prompt(prompt), **fields)

    return make


def test_one_right_choice(truthful):
    (sample,), _ = read(truthful(row(), choice_seed=None))
    assert sample.prompt[0].content.endswith("\n1. They pass through\n2. They grow\n3. You get sick\n4. You dream")
    assert sample.reference == ["1"]
    assert sample.meta["choices"] == ["They pass through", "They grow", "You get sick", "You dream"]
    assert sample.meta["correct"] == [1]


def test_several_right_choices(truthful):
    (sample,), _ = read(truthful(row(), task="mc2", choice_seed=None))
    assert sample.reference == ["[1, 2]"]
    assert sample.meta["correct"] == [1, 2]


@pytest.mark.parametrize("task", ["mc1", "mc2"])
def test_choices_are_shuffled_by_the_question_and_the_reference_follows(task, truthful):
    rows = [row(n) for n in range(40)]
    samples, _ = read(truthful(*rows, task=task))
    right = {"mc1": {"They pass through"}, "mc2": {"Nothing", "They pass"}}[task]
    for sample in samples:
        numbers = json.loads(sample.reference[0])
        numbers = numbers if isinstance(numbers, list) else [numbers]
        assert {sample.meta["choices"][number - 1] for number in numbers} == right
        assert numbers == sorted(numbers) == sample.meta["correct"]
        for number in numbers:
            assert f"\n{number}. {sample.meta['choices'][number - 1]}" in sample.prompt[0].content
    first = [sample.meta["correct"][0] for sample in samples]
    assert {1, 2, 3} <= set(first)
    later, _ = read(truthful(*rows, task=task, skip=30, shuffle_seed=None))
    assert later == samples[30:]  # the order does not depend on what else is read
    other, _ = read(truthful(*rows, task=task, choice_seed=1))
    assert [sample.reference for sample in other] != [sample.reference for sample in samples]


def test_the_order_of_choices_is_part_of_a_recipes_meaning(truthful):
    """It must not change between versions."""
    samples, _ = read(truthful(*(row(n) for n in range(8))))
    assert [sample.reference[0] for sample in samples] == ["2", "3", "1", "1", "3", "2", "1", "3"]


def test_an_answer_in_words(truthful):
    one = {
        "type": "Adversarial", "category": "Myths", "question": "Do seeds grow in you?", "best_answer": "They pass.",
        "correct_answers": ["Nothing happens", "They pass."], "incorrect_answers": ["They grow."], "source": "https://w.org",
    }  # fmt: skip
    (sample,), _ = read(truthful(one, prompt="{question}", features=GENERATION, task="generation"))
    assert sample.reference == ["They pass.", "Nothing happens"]
    assert sample.meta == {"question": "Do seeds grow in you?", "kind": "Myths"}
    with pytest.raises(DataError, match=r"unknown placeholder \{choices\}"):
        read(truthful(one, features=GENERATION, task="generation"))


def test_the_configuration_follows_the_task():
    assert TruthfulQa(prompt="x").hub_config() == "multiple_choice"
    assert TruthfulQa(prompt="x", task="generation").hub_config() == "generation"
    assert TruthfulQa(prompt="x", config="other").hub_config() == "other"


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"choices": ["a", "b"], "labels": [1]}, "wants 0 or 1 for each of 2 choices"),
        ({"choices": ["a", "b"], "labels": [1, 2]}, "wants 0 or 1 for each of 2 choices"),
        ({"choices": ["a", " "], "labels": [1, 0]}, "wants a list of texts"),
        ({"choices": ["a", "b"], "labels": [0, 0]}, "0 choices are right"),
        ({"choices": ["a", "b"], "labels": [1, 1]}, "2 choices are right: `task: mc1` wants one"),
    ],
)
def test_rows_that_do_not_fit(targets, message, truthful):
    with pytest.raises(DataError, match=f"row 2: .*{message}"):
        read(truthful(row(0), row(1) | {"mc1_targets": targets}))


def test_a_missing_column_shows_the_first_row_and_the_key_to_set(folder, truthful):
    one = row()
    one["mc1_targets"]["answers"] = one["mc1_targets"].pop("choices")
    reader = TruthfulQa(**folder.jsonl([one]), prompt=folder.prompt(PROMPT))
    with pytest.raises(
        DataError, match=r'no column "mc1_targets.choices"(?s:.*)Set `columns.choices`(?s:.*)mc2_targets'
    ):
        read(reader)
    named = TruthfulColumns(choices="mc1_targets.answers")
    assert len(read(reader.model_copy(update={"columns": named}))[0]) == 1


@pytest.mark.parametrize("task", ["mc1", "mc2"])
def test_the_shipped_prompts_serve(task, folder):
    rows = [row(n) | {"found": [f"Source {n}."]} for n in range(7)]
    for name in (f"truthful_qa_{task}.txt", f"truthful_qa_{task}_search.txt"):
        reader = TruthfulQa(
            **folder.jsonl(rows),
            prompt=str(PROMPTS / name),
            task=task,
            shots=Shots(count=6),
            columns=TruthfulColumns(context="found"),
        )
        samples, _ = read(reader)
        assert len(samples) == 7
        for number, sample in enumerate(samples):
            system, user = sample.prompt
            assert user.content.count("Question: ") == 7
            assert user.content.count(f"eat {number} watermelon") == 1
            assert user.content.endswith("Answer:")
            assert user.content.count(f"Answer: {'[' if task == 'mc2' else ''}") >= 6
            assert (f"[1] Source {number}." in system.content) == ("search" in name)
