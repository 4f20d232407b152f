"""Samples and pairs as the rows that models read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.experiments.stages import previews
from fgrl.rollouts import encoding
from fgrl.rollouts.rows import RowGroups
from fgrl.training.units import EncodedUnits
from fgrl.types import Pair, Response, Sample, per_response, per_token

TEXTS = ["The river runs.", "A lamp stands on the table; she reads until late at night.", "Why?", ""]


def stage(data: str, records: list[Any], **sizes: int) -> Any:
    reader = SimpleNamespace(pairs=lambda: iter(records), read=lambda: iter(records))
    return SimpleNamespace(
        algorithm=SimpleNamespace(data=data, encode=lambda *_: None, columns={}, reads=frozenset),
        data=reader,
        **{"max_prompt_tokens": 20, "max_tokens": 40} | sizes,
    )


def test_pairs_are_encoded_as_their_parts_are(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(tiny_model_dir)
    pairs = [Pair(id=str(i), prompt=text * 3, chosen=text, rejected=text[::-1]) for i, text in enumerate(TEXTS)]
    calls: list[str] = []
    encode_prompt = rollouts.encode_prompt
    monkeypatch.setattr(
        encoding.rollouts, "encode_prompt", lambda t, p, most: (calls.append(p), encode_prompt(t, p, most))[1]
    )
    units = encoding.units(stage("pairs", pairs), model)
    assert calls == [pair.prompt for pair in pairs], "once a pair"
    assert len(units) == len(pairs)
    for unit, pair in zip(units, pairs, strict=True):
        prompt = encode_prompt(model.tokenizer, pair.prompt, 20)
        for row, text in zip(unit, (pair.chosen, pair.rejected), strict=True):
            assert row["prompt"] == list(prompt.token_ids)
            assert row["response"] == rollouts.cut_response(
                rollouts.encode_response(model.tokenizer, text, model.end_id), 40 - len(prompt), model.end_id
            )
            assert row["finished"]
            assert dict(row["columns"]) == {}


def test_samples_give_one_row_each(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    samples = [
        Sample(id="a", prompt="Say:", responses=[Response(text="one")]),
        Sample(id="b", prompt="Say:", reference="two"),
        Sample(id="c", prompt="Say:", reference=["three", "four"]),
    ]
    units = encoding.units(stage("samples", samples), model)
    assert [rollouts.decode(model.tokenizer, row["response"]) for (row,) in units] == ["one", "two", "three"]
    assert len(encoding.units(stage("samples", samples), model, limit=2)) == 2
    with pytest.raises(DataError, match="sample d has neither"):
        encoding.units(stage("samples", [Sample(id="d", prompt="Say:")]), model)


def test_a_response_has_room_for_a_token_at_least(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    pairs = [Pair(id="0", prompt=TEXTS[1], chosen=TEXTS[1], rejected="no")]
    (unit,) = encoding.units(stage("pairs", pairs, max_tokens=8), model)
    assert [row["response"] for row in unit] == [[model.end_id], [model.end_id]]


def test_what_is_too_long_is_cut_and_counted(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    long = "word " * 60
    pairs = [
        Pair(id="a", prompt=long, chosen="yes", rejected=long),
        Pair(id="b", prompt="Say:", chosen="a", rejected="b"),
    ]
    units = encoding.units(stage("pairs", pairs), model)
    assert units.rows.cut_counts() == {"cut prompts": 1, "cut responses": 1}
    assert [len(row["prompt"]) + len(row["response"]) <= 40 for unit in units for row in unit] == [True] * 4


@pytest.mark.parametrize("data", ["pairs", "samples"])
def test_rows_longer_than_the_model_reads_are_refused(data: str, tiny_model_dir: Path) -> None:
    """The tiny model has 2,048 positions; its tokens have one or two characters."""
    model, long = tiny(tiny_model_dir), "word " * 1200
    records: dict[str, list[Any]] = {
        "pairs": [Pair(id="a", prompt=long, chosen="yes", rejected="no")],
        "samples": [Sample(id="a", prompt=long, reference="yes")],
    }
    sizes = {"max_prompt_tokens": 3000, "max_tokens": 4000}
    with pytest.raises(
        DataError, match=r"tiny-llama reads at most 2,048 tokens, and a prompt.* up to 3,00\d: set `max_tok"
    ):
        encoding.units(stage(data, records[data], **sizes), model)
    (unit,) = encoding.units(stage(data, records[data], max_prompt_tokens=500, max_tokens=512), model)
    assert len(unit[0]["prompt"]) == 500
    assert unit[0]["lost"][0] > 0


def test_inspection_shows_what_is_cut(tiny_model_dir: Path) -> None:
    model, long = tiny(tiny_model_dir), "word " * 60
    whole = (
        len(rollouts.encode_prompt(model.tokenizer, long)),
        len(model.tokenizer(long, add_special_tokens=False)[0]) + 1,
    )
    ((chosen, rejected),) = encoding.units(
        stage("pairs", [Pair(id="a", prompt=long, chosen=long, rejected="b")]), model
    )
    shown = [previews.of_row(row, model.tokenizer).title for row in (chosen, rejected)]
    prompt = f"20 prompt tokens, the first {whole[0] - 20} of {whole[0]} are cut"
    assert shown[0] == f"{prompt}, 20 response tokens, the last {whole[1] - 20} of {whole[1]} are cut"
    assert shown[1] == f"{prompt}, {len(rejected['response'])} response tokens"


def test_columns_of_pairs_reach_the_loss(tiny_model_dir: Path) -> None:
    """Numbers, and lists with one number per token, of both responses or of each; cut with their responses."""
    model = tiny(tiny_model_dir)
    count = len(rollouts.encode_response(model.tokenizer, "Say lamp.", model.end_id))
    other = len(rollouts.encode_response(model.tokenizer, "No.", model.end_id))
    weight = {"chosen": [0.5 + i for i in range(count - 1)], "rejected": [2.0] * other}
    pairs = [
        Pair(id="p", prompt="A", chosen="Say lamp.", rejected="No.", meta={"weight": weight, "sure": 0.25, "more": 1})
    ]
    columns = {"weight": per_token(fill=1.0), "sure": per_response()}
    table = encoding.pairs(pairs, model, 64, 256, columns, {"weight", "sure"})
    assert [row["columns"]["weight"].tolist() for row in table] == [[*weight["chosen"], 1.0], weight["rejected"]]
    assert [row["columns"]["sure"].item() for row in table] == [0.25, 0.25]
    batch = EncodedUnits(RowGroups(table, each=2), pad_id=0, eos_ids=model.eos_ids, columns=columns).batch([0])
    assert batch.columns["weight"].shape == batch.mask.shape
    assert batch.columns["weight"][1, other:].unique().tolist() == [1.0]
    shown = previews.of_row(table[0], model.tokenizer)
    assert shown.layers["weight"][-2:] == [weight["chosen"][-1], 1.0]
    assert shown.note == "sure 0.25"
    # a response that is cut loses the numbers of its end
    prompt = len(rollouts.encode_prompt(model.tokenizer, "A"))
    cut = encoding.pairs(pairs, model, 64, prompt + 3, columns, {"weight", "sure"})
    assert cut[0]["columns"]["weight"].tolist() == [0.5, 1.5, 1.0]


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({}, 'pair p, chosen: its meta has no "weight", which the algorithm reads'),
        ({"weight": [1.0, 2.0]}, r'meta "weight": wants a list of one number per token of the response, \d+ \(or \d+ without its end'),
        ({"weight": 1.0}, "got 1.0"),
        ({"weight": {"chosen": ["a"], "rejected": [1]}}, r"wants numbers, got \['a'\]"),
        ({"weight": [1.0, float("nan")]}, 'meta "weight": wants finite numbers, got nan'),
        ({"weight": float("inf")}, "wants finite numbers, got inf"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(meta: dict[str, Any], said: str, tiny_model_dir: Path) -> None:
    pair = Pair(id="p", prompt="A", chosen="Say lamp to me.", rejected="No.", meta=meta)
    with pytest.raises(DataError, match=said):
        encoding.pairs([pair], tiny(tiny_model_dir), 64, 256, {"weight": per_token(fill=1.0)}, {"weight"})
