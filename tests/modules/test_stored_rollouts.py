"""Rollouts that a training keeps: of which iterations, what is in them, how large they can become, and after a crash."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from tiny_recipe import a_run, alone
from training_helpers import tiny

from fgrl.base.errors import Stopped
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import Sampling
from fgrl.rollouts import collect
from fgrl.training import gather, stored_rollouts
from fgrl.training.stored_rollouts import MOST_CHARACTERS, MOST_SPANS, MOST_TOKENS, RolloutStore, StoredRollout, parts
from fgrl.types import Advantages, Annotation, Message, Rewards, Rollout, Sample, Span, per_token

NAN = float("nan")


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    return tiny(tiny_model_dir)


@pytest.fixture(scope="module")
def rollout(model: Any) -> Rollout:
    prompts = [Sample(id=f"p{i}", prompt=f"Question {i}", meta={"secret": "x"}) for i in range(6)]
    return collect(model, model, prompts, Sampling(max_new_tokens=8), HF().open(model), frozenset(), seed=1)


def scored(rollout: Rollout, **more: Any) -> Rewards:
    """Token t is worth t where t is even, and nothing is assigned to the others."""
    worth = torch.arange(rollout.mask.shape[1]).float().repeat(len(rollout.mask), 1)
    assigned = rollout.mask & (worth % 2 == 0)
    return Rewards(torch.arange(len(worth)).float(), torch.where(assigned, worth, 0.0), assigned, **more)


def advantages_of(rollout: Rollout, **more: Any) -> Advantages:
    """Row i has the advantage i + 1/3 everywhere."""
    rows = torch.arange(len(rollout.mask)).float()[:, None] + 1 / 3
    return Advantages(rows.expand(rollout.mask.shape), **more)


def store_of(folder: Path, model: Any, count: int = 2, iterations: int = 10) -> RolloutStore:
    return RolloutStore(count, iterations, folder, "critic", model.tokenizer)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("iterations", "done", "kept"),
    [(10, 10, [0, 5, 9]), (5, 5, [0, 2, 4]), (2, 2, [0, 1]), (1, 1, [0]), (10, 8, [0, 5, 7]), (10, 6, [0, 5]), (10, 3, [0, 2])],
)  # fmt: skip
def test_the_first_the_middle_and_the_last_one(
    iterations: int, done: int, kept: list[int], tmp_path: Path, model: Any, rollout: Rollout
) -> None:
    """Also where the training ends early, so that the last one was not known."""
    store = store_of(tmp_path, model, iterations=iterations)
    for iteration in range(done):
        store.add(iteration, rollout, scored(rollout), advantages_of(rollout))
    (tmp_path / "out").mkdir()
    store.hand_on(tmp_path / "out")
    lines = read(tmp_path / "out" / "rollouts.jsonl")
    assert [line["iteration"] for line in lines] == [iteration for iteration in kept for _ in range(2)]


def test_what_is_stored_of_a_response(tmp_path: Path, model: Any, rollout: Rollout) -> None:
    recorded = Annotation(by="judge", critique="Too long.", spans=[Span(start=0, end=1, label=-1.0, note="why")])
    rewards = scored(rollout, annotations=[recorded, None, *[Annotation()] * 4], segment_ids=rollout.mask.long() - 1)
    store_of(tmp_path, model, count=3).add(0, rollout, rewards, advantages_of(rollout))
    lines = [StoredRollout.model_validate(line) for line in read(tmp_path / "rollouts" / "0.jsonl")]
    assert [line.sample.id for line in lines] == ["p0", "p2", "p4"], "evenly spaced"
    for row, line in zip((0, 2, 4), lines, strict=True):
        length = int(rollout.mask[row].sum())
        assert line.sample == Sample(id=f"p{row}", prompt=f"Question {row}"), "nothing else of the sample"
        assert line.response.text == rollout.texts[row]
        assert line.response.score == row
        assert line.response.finished == bool(rollout.eos[row].any())
        assert len(line.tokens) == len(line.offsets) == length
        assert line.token_rewards == {"critic": [float(t) if t % 2 == 0 else None for t in range(length)]}
        assert line.segments == {"critic": [0] * length}
        assert line.advantages == [float(f"{row + 1 / 3:.6g}")] * length
        assert (line.tokens_left_out, line.spans_left_out) == (0, 0)
    assert lines[0].annotations == {"critic": recorded}
    assert lines[1].annotations == {"critic": Annotation()}, "a critic that marks nothing is not missing"


@dataclass
class Weighed(Rewards):
    """Rewards with a column of a subclass."""

    doubt: torch.Tensor = field(kw_only=True, metadata={"column": per_token(fill=0.0)})


def test_columns_of_tokens_are_stored(tmp_path: Path, model: Any, rollout: Rollout) -> None:
    """Of auxiliary models, of the reward (named ones and those of a subclass), and of the algorithm, whose rows are fewer; not those of
    whole responses."""
    places = torch.arange(rollout.mask.numel()).float().reshape(rollout.mask.shape)
    given = scored(rollout)
    rewards = Weighed(
        given.response, given.token, given.credit_mask, doubt=places + 0.25, columns={"weight": places + 0.5, "size": places[:, 0]}
    )  # fmt: skip
    rewards.response[2] = NAN
    with_columns = replace(rollout, columns={"prm_logp": -places})
    rest, _, missing = gather.drop_missing(with_columns, rewards)
    assert missing == 1
    share = torch.arange(5).float()[:, None].expand(rest.mask.shape).clone()
    share[0, 0] = math.inf
    store_of(tmp_path, model, count=6).add(0, with_columns, rewards, advantages_of(rest, columns={"share": share}))
    lines = [StoredRollout.model_validate(line) for line in read(tmp_path / "rollouts" / "0.jsonl")]
    for row, line in enumerate(lines):
        length = int(rollout.mask[row].sum())
        first = row * rollout.mask.shape[1]
        expected: dict[str, list[float | None]] = {
            "prm_logp": [-float(first + t) for t in range(length)],
            "doubt": [first + t + 0.25 for t in range(length)],
            "weight": [first + t + 0.5 for t in range(length)],
        }
        if row != 2:  # its reward is missing
            expected["share"] = [float(row - (row > 2))] * length
        if row == 0:
            expected["share"][0] = None
        assert line.columns == expected


def test_what_was_not_trained_on_has_no_advantages(tmp_path: Path, model: Any, rollout: Rollout) -> None:
    """Advantages are of the responses whose reward is not missing; the algorithm may leave some of these out."""
    rewards = scored(rollout, annotations=[None, *[Annotation(critique="x")] * 5])
    rewards.response[torch.tensor([0, 3])] = NAN
    rest, _, missing = gather.drop_missing(rollout, rewards)
    assert missing == 2
    kept = torch.tensor([True, False, True, True])
    store_of(tmp_path, model, count=6).add(0, rollout, rewards, advantages_of(rest, keep=kept))
    lines = read(tmp_path / "rollouts" / "0.jsonl")
    firsts = [line["advantages"][0] if "advantages" in line else None for line in lines]
    assert firsts == [None, 0.333333, None, None, 2.33333, 3.33333]
    assert [line["response"].get("score") for line in lines] == [None, 1, 2, None, 4, 5]
    assert lines[0]["annotations"] == {"critic": None}
    assert StoredRollout.model_validate(lines[0]).annotations == {"critic": None}


def test_fewer_responses_than_are_asked_for(tmp_path: Path, model: Any, rollout: Rollout) -> None:
    few = rollout.take(torch.tensor([4, 5]))
    store_of(tmp_path, model, count=5).add(0, few, scored(few), advantages_of(few))
    assert [line["sample"]["id"] for line in read(tmp_path / "rollouts" / "0.jsonl")] == ["p4", "p5"]


def test_repeated_iterations_leave_the_same_file(tmp_path: Path, model: Any, rollout: Rollout) -> None:
    """A killed training repeats iterations since its last checkpoint, and may end before the one that it was killed in."""
    whole, killed = store_of(tmp_path / "whole", model), store_of(tmp_path / "killed", model)
    for folder in ("whole", "killed"):
        (tmp_path / folder / "out").mkdir(parents=True)
    for iteration in range(7):
        whole.add(iteration, rollout, scored(rollout), advantages_of(rollout))
    for iteration in (0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 5, 6):
        killed.add(iteration, rollout, scored(rollout), advantages_of(rollout))
    for store, folder in ((whole, "whole"), (killed, "killed")):
        store.hand_on(tmp_path / folder / "out")
    assert [path.name for path in parts(tmp_path / "killed")] == ["0.jsonl", "5.jsonl", "6.jsonl"]
    results = [(tmp_path / folder / "out" / "rollouts.jsonl").read_bytes() for folder in ("whole", "killed")]
    assert results[0] == results[1]


def test_the_size_is_bounded(tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    length = MOST_TOKENS + 50
    ids = torch.full((1, length), 40)
    turns = [Message(role="user", content="x" * 100_000)] * 30
    text = model.tokenizer.decode(ids[0].tolist())
    huge = Rollout(
        torch.ones(1, 1).long(), torch.ones(1, 1).bool(), ids, torch.ones(1, length).bool(), torch.zeros(1, length).bool(),
        torch.zeros(1).long(), [Sample(id="0", prompt=turns)], [text],
    )  # fmt: skip
    spans = [Span(start=0, end=1, reasons=["y" * 50_000], note="z" * 50_000)] * (MOST_SPANS + 30)
    spans.append(Span(start=len(text) - 1, end=len(text)))
    monkeypatch.setattr(stored_rollouts, "MOST_CHARACTERS", 100)
    recorded = Annotation(critique="c" * 1_000_000, spans=spans)
    store_of(tmp_path, model).add(0, huge, scored(huge, annotations=[recorded]), advantages_of(huge))
    path = tmp_path / "rollouts" / "0.jsonl"
    line = StoredRollout.model_validate(read(path)[0])
    assert path.stat().st_size < MOST_TOKENS * 100 + MOST_SPANS * 500 + 10_000
    assert len(line.tokens) == len(line.offsets) == len(line.token_rewards["critic"]) == MOST_TOKENS
    assert line.tokens_left_out == 50
    assert text.startswith(line.response.text)
    assert line.offsets[-1][1] == len(line.response.text)
    assert line.spans_left_out == 31
    assert isinstance(line.sample.prompt, list)
    assert line.sample.prompt[-1].content == "x" * 100 + " … (99,900 characters more)"
    assert MOST_CHARACTERS == 10_000


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    return tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)


def test_a_training_stores_what_it_trained_on(recipe: Path, tmp_path: Path) -> None:
    """The segment reward of PPO, without a critic: rewards, segments, and advantages that were whitened."""
    alone(recipe, "policy", "stages.policy.stored_rollouts=12").run(a_run(tmp_path / "run"))
    lines = [StoredRollout.model_validate(line) for line in read(tmp_path / "run" / "out" / "rollouts.jsonl")]
    assert [line.iteration for line in lines] == [0] * 12 + [2] * 12 + [4] * 12
    assert all(
        line.annotations == {} and set(line.token_rewards) == set(line.segments) == {"segment_rm"} for line in lines
    )
    for iteration in (0, 2, 4):
        values = [v for line in lines if line.iteration == iteration for v in line.advantages or []]
        assert abs(sum(values) / len(values)) < 1e-4
        assert sum(value**2 for value in values) / len(values) == pytest.approx(1, abs=0.05)
    rewards = [line.response.score for line in lines if line.iteration == 4]
    (last,) = [row for row in tiny_recipe.log(tmp_path / "run") if row["step"] == 4]
    assert sum(score or 0 for score in rewards) / 12 == pytest.approx(last["reward"], abs=1e-4)


def test_none_are_stored_where_nobody_wants_them(recipe: Path, tmp_path: Path) -> None:
    options = ["stages.policy.stored_rollouts=0", "stages.policy.train.iterations=1"]
    alone(recipe, "policy", *options).run(a_run(tmp_path / "run"))
    assert not (tmp_path / "run" / "rollouts").exists()
    assert not (tmp_path / "run" / "out" / "rollouts.jsonl").exists()


def test_a_training_that_an_alarm_stops_leaves_the_responses_that_it_was_about(recipe: Path, tmp_path: Path) -> None:
    stop = "stages.policy.alarms={tokens: {above: 0.5, patience: 2, action: stop}}"
    with pytest.raises(Stopped):
        alone(recipe, "policy", stop).run(a_run(tmp_path / "run"))
    assert [path.stem for path in parts(tmp_path / "run")] == ["0", "1"]
    assert not (tmp_path / "run" / "out" / "rollouts.jsonl").exists()


def test_line_separators_in_a_text_do_not_cut_its_line(tmp_path: Path, model: Any, rollout: Rollout) -> None:
    """U+2028 and U+0085 are characters of JSON strings, at which `str.splitlines` cuts."""
    text = "one\u2028two\u0085three\x1cfour"
    prompts = [sample.model_copy(update={"prompt": text}) for sample in rollout.samples]
    store = store_of(tmp_path, model)
    store.add(0, replace(rollout, samples=prompts), scored(rollout), advantages_of(rollout))
    (tmp_path / "out").mkdir()
    store.hand_on(tmp_path / "out")
    lines = (tmp_path / "out" / "rollouts.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line)["sample"]["prompt"] for line in lines[:-1]] == [text] * 2
    assert lines[-1] == ""
