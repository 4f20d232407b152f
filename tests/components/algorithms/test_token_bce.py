"""Training a discriminator: what it reads, its loss, and that what is learned is what the relevance then says."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from training_helpers import FakeModel, a_run, distance, fake_batch, step_gradient, tiny, whole

from fgrl import models, rollouts
from fgrl.base.errors import DataError
from fgrl.base.mergeable import as_numbers
from fgrl.kinds import Checked
from fgrl.registry import build
from fgrl.rollouts.relevance_input import prompt_ids, relevance_prompt
from fgrl.rollouts.rows import RowGroups, TokenTable
from fgrl.training.offline import OfflineRounds
from fgrl.training.trainer import OfflineSettings
from fgrl.training.training_module import TrainingModule
from fgrl.types import Annotation, Criterion, Response, Rollout, Sample, Span

PROMPT = Path(__file__).resolve().parents[3] / "prompts" / "relevance.txt"
WORDS = ("mill", "lamp", "river", "bread")


def algorithm(**fields: Any) -> Any:
    return build("offline_algorithm", {"name": "token_bce", "prompt": str(PROMPT), **fields})


def marked(number: int, text: str, *spans: tuple[int, int]) -> Sample:
    criterion = Criterion(text="a word for a thing")
    return Sample(
        id=str(number),
        prompt="?",
        rubric=[criterion],
        chosen=0,
        responses=[Response(text=text, annotations=[Annotation(spans=[Span(start=a, end=b) for a, b in spans])])],
    )


def some_samples(count: int) -> list[Sample]:
    """Every "lamp" is marked, wherever it stands."""
    found = []
    for number in range(count):
        words = [WORDS[(number * 7 + place * (1 + number % 3)) % 4] for place in range(2 + number % 5)]
        text = "the " + " the ".join(words) + "."
        spans = [(at, at + 4) for at in range(len(text)) if text.startswith("lamp", at)]
        found.append(marked(number, text, *spans))
    return found


def units_of(samples: list[Sample], model: Any, **fields: Any) -> RowGroups:
    table, columns = TokenTable(algorithm().columns), []
    for sample in samples:
        encoded = algorithm(**fields).encode(sample, model, 256)
        table.add(encoded.prompt, encoded.response, eos_ids=model.eos_ids)
        columns.append(encoded.columns)
    for row, values in zip(table, columns, strict=True):
        row["columns"].update(values)
    return RowGroups(table, each=1)


def test_tokens_of_marked_words_are_marked(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    sample = marked(0, "Zwölf 🎉 lamps, 你好", (6, 7), (8, 13))
    encoded = algorithm().encode(sample, model, 256)
    assert encoded.prompt == prompt_ids(model.tokenizer, relevance_prompt(str(PROMPT)), "a word for a thing")
    assert model.tokenizer.decode(encoded.response[:-1]) == sample.chosen_response.text
    assert encoded.response[-1] == model.end_id
    offsets = model.tokenizer(
        sample.chosen_response.text, add_special_tokens=False, return_offsets_mapping=True
    ).offset_mapping
    expected = [float(any(6 <= at < 7 or 8 <= at < 13 for at in range(start, end))) for start, end in offsets]
    assert encoded.columns["relevant"].tolist() == [*expected, 0.0]
    assert 0 < sum(expected) < len(expected)
    whole = algorithm().encode(marked(1, "lamps", (0, 5)), model, 256)
    assert whole.columns["relevant"].tolist() == [1.0] * len(whole.response), "the end, too, where all is marked"
    nothing = algorithm().encode(marked(2, ""), model, 256)
    assert (nothing.response, nothing.columns["relevant"].tolist()) == ([model.end_id], [0.0])


def test_a_response_that_is_too_long_loses_its_end(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    sample = marked(0, "the lamp " * 20, (0, 180))
    encoded = algorithm().encode(sample, model, 120)
    assert len(encoded.prompt) + len(encoded.response) == 120
    assert encoded.columns["relevant"].tolist() == [1.0] * len(encoded.response)
    with pytest.raises(DataError, match="raise max_tokens"):
        algorithm().encode(sample, model, 60)


def test_what_is_not_learnt_is_said(tiny_model_dir: Path) -> None:
    model, bce, said = tiny(tiny_model_dir), algorithm(token_policy="inside"), []
    run: Any = SimpleNamespace(say=said.append)
    for sample in (marked(0, "the lamp " * 20, (0, 3), (170, 180)), marked(1, "mill lamp", (2, 2), (0, 9))):
        bce.encode(sample, model, 120)
    bce.prepare([], run, model)
    assert said == ["token_bce: 1 of 2 responses lose their end to max_tokens; 2 of 4 marked spans have no token"]
    bce.setup(run)
    bce.encode(marked(2, "lamp", (0, 4)), model, 120)
    bce.prepare([], run, model)
    assert len(said) == 1, "nothing is lost"


@pytest.mark.parametrize(
    "sample",
    [
        Sample(id="two", prompt="?", responses=[Response(text="x")], rubric=[Criterion(text="a"), Criterion(text="b")]),
        Sample(id="none", prompt="?", responses=[Response(text="x")]),
        Sample(id="silent", prompt="?", rubric=[Criterion(text="a")]),
    ],
)
def test_other_samples_are_refused(sample: Sample, tiny_model_dir: Path) -> None:
    with pytest.raises(DataError, match=rf"sample {sample.id} .*mark_by_rules"):
        algorithm().encode(sample, tiny(tiny_model_dir), 64)


@pytest.mark.parametrize("aggregate", ["token_mean", "seq_mean"])
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_the_loss_is_equation_5(aggregate: str, weight: float) -> None:
    draw = np.random.default_rng(0)
    lengths = [3, 5, 1]
    logit = draw.normal(size=(3, 5)).astype(np.float32)
    label = (draw.random((3, 5)) > 0.5).astype(np.float32)
    given = torch.tensor(logit)
    for row, length in enumerate(lengths):
        given[row, length:] = float("nan")  # what is not a token has no part
    batch = fake_batch(lengths, {"relevant": torch.tensor(label)})
    loss, metrics = algorithm(aggregate=aggregate, positive_weight=weight).loss(FakeModel(numbers=given), batch)
    rows = []
    said = found = both = 0
    for row, length in enumerate(lengths):
        rows.append([])
        for t in range(length):
            p = 1 / (1 + math.exp(-logit[row, t]))
            rows[-1].append(-weight * math.log(p) if label[row, t] else -math.log(1 - p))
            said += p > 0.5
            found += label[row, t] == 1
            both += p > 0.5 and label[row, t] == 1
    flat = [value for values in rows for value in values]
    means = {"token_mean": np.mean(flat), "seq_mean": np.mean([np.mean(values) for values in rows])}
    assert float(loss) == pytest.approx(means[aggregate], rel=1e-5)
    assert as_numbers(metrics)["loss"] == pytest.approx(np.mean(flat), rel=1e-5)
    assert as_numbers(metrics)["precision"] == pytest.approx(both / said)
    assert as_numbers(metrics)["recall"] == pytest.approx(both / found)
    assert as_numbers(metrics)["f1"] == pytest.approx(2 * both / (said + found))


@pytest.mark.parametrize("aggregate", ["token_mean", "seq_mean"])
def test_micro_batches_change_nothing(aggregate: str, tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir, head="token", trainable=True)
    units = units_of(some_samples(8), model)
    bce = algorithm(aggregate=aggregate)
    results = [step_gradient(model, lambda b: bce.loss(model, b)[0], whole(units, pieces)) for pieces in (1, 3, 8)]
    for loss, gradient in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-5)
        assert distance(results[0][1], gradient) < 1e-5


def test_what_is_learned_is_what_the_relevance_says(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, head="token", trainable=True)
    units = units_of(some_samples(64), model)
    settings = OfflineSettings(
        lr=1e-2, epochs=6, batch_size=16, micro_batch_size=16, accelerator="cpu", schedule="constant", warmup=0.0
    )
    rounds = OfflineRounds(model, algorithm(), units, settings, a_run(tmp_path / "train"))
    before = rounds.measure(units)
    TrainingModule(rounds).fit(checkpoint_every=100)
    after = rounds.measure(units)
    assert after["loss"] < before["loss"] / 2
    assert after["f1"] > 0.9
    models.save(model, tmp_path / "made", algorithm().describe())
    relevance = build("relevance", {"name": "discriminator", "model": str(tmp_path / "made"), "prompt": str(PROMPT)})
    relevance.setup(a_run(tmp_path / "use"))
    sample = some_samples(9)[-1]
    ids = [*model.tokenizer(sample.chosen_response.text, add_special_tokens=False).input_ids, model.end_id]
    tokens = rollouts.pad([[1]], [ids], pad_id=0, eos_ids=[model.end_id])
    offsets = [rollouts.offsets(model.tokenizer, ids)]
    rollout = Rollout(
        **vars(tokens),
        group=torch.zeros(1).long(),
        samples=[sample],
        texts=[sample.chosen_response.text],
        offsets=offsets,
    )
    (weights,) = relevance.weigh(rollout, [Checked(0, sample.rubric[0], None, True)])
    (batch,) = whole(units_of([sample], model))
    with torch.no_grad():
        said = model.eval().rewards(batch).sigmoid()[0]
    assert torch.allclose(weights, said, atol=1e-5), "the same ids, in the same places"
    (tmp_path / "other.txt").write_text("Which tokens? {criterion}\n{response}")
    fields = {"model": str(tmp_path / "made"), "prompt": str(tmp_path / "other.txt")}
    with pytest.raises(DataError, match="trained with another prompt"):
        build("relevance", {"name": "discriminator", **fields}).setup(a_run(tmp_path / "again"))


def test_a_head_that_nobody_trained_is_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    relevance = build("relevance", {"name": "discriminator", "model": str(tiny_model_dir), "prompt": str(PROMPT)})
    with pytest.raises(DataError, match=r"no trained token head.*token_bce"):
        relevance.setup(a_run(tmp_path))
