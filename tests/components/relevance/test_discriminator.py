"""Relevance of a model: what it reads, in which batches, and how it gets to the policy's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CORPUS, train_tokenizer
from quote_texts import TOKENIZERS
from training_helpers import a_run, tiny

from fgrl import models, rollouts
from fgrl.registry import build
from fgrl.types import Criterion, Rewards, Rollout, Sample

PROMPT = Path(__file__).resolve().parents[3] / "prompts" / "relevance.txt"
CRITERIA = [
    Criterion(text="no commas at all", check={"name": "punctuation:no_comma"}),
    Criterion(text="a lamp", check={"name": "keywords:existence", "keywords": ["lamp"]}),
    Criterion(text="short", check={"name": "length_constraints:number_words", "relation": "less than", "num_words": 4}),
]
TEXTS = ["The lamp, lit.", "Zwölf große 🎉 Boxkämpfer", "", "你好, 世界! the river runs past the mill"]


@pytest.fixture(scope="module")
def trained(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A discriminator on disk, with a head that says something."""
    folder = tmp_path_factory.mktemp("discriminator")
    model = tiny(tiny_model_dir, head="token", trainable=True, seed=3)
    with torch.no_grad():
        model.number.weight.mul_(5)
        model.number.bias.fill_(-0.3)
    models.save(model, folder, {})
    return folder


def reward_of(folder: Path, run_dir: Path, **fields: Any) -> Any:
    relevance = {"name": "discriminator", "model": str(folder), "prompt": str(PROMPT), "micro_batch_size": 4, **fields}
    reward = build("reward", {"name": "rubric", "relevance": relevance})
    reward.setup(a_run(run_dir))
    return reward


def rollout_of(tokenizer: Any, texts: list[str]) -> Rollout:
    """Sampled tokens that are not those which the text would be encoded as: every second merge is undone."""
    ids = []
    for text in texts:
        pieces = [tokenizer(part, add_special_tokens=False).input_ids for part in (text[:3], text[3:4], text[4:])]
        ids.append([token for piece in pieces for token in piece] + [tokenizer.eos_token_id])
    tokens = rollouts.pad([[1]] * len(ids), ids, pad_id=0, eos_ids=[tokenizer.eos_token_id])
    return Rollout(
        **vars(tokens), group=torch.zeros(len(ids)).long(),
        samples=[Sample(id=str(i), prompt="?", rubric=CRITERIA[: 1 + i % 3]) for i in range(len(ids))],
        texts=[rollouts.decode(tokenizer, row) for row in ids], offsets=[rollouts.offsets(tokenizer, row) for row in ids],
    )  # fmt: skip


def slow(model: Any, criterion: Criterion, rollout: Rollout, row: int) -> list[float]:
    """One pair alone, without padding, character by character."""
    text = rollout.texts[row]
    head = PROMPT.read_text(encoding="utf-8").strip().replace("{criterion}", criterion.text).removesuffix(" {response}")
    prompt = model.tokenizer(head).input_ids
    encoded = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    characters = [0.0] * len(text)
    ids = [*prompt, *encoded.input_ids, model.end_id]
    with torch.no_grad():
        states = model.net(input_ids=torch.tensor([ids])).last_hidden_state[0, len(prompt) :]
        *score, end_score = (
            (states.double() @ model.number.weight.double() + model.number.bias.double()).sigmoid().tolist()
        )
    for value, (start, end) in zip(score, encoded.offset_mapping, strict=True):
        for at in range(start, end):
            characters[at] = max(characters[at], value)
    *inside, _end = rollout.offsets[row]
    return [*(max(characters[start:end], default=0.0) for start, end in inside), end_score]


def test_weights_are_the_model_s_and_lie_on_the_policy_s_own_tokens(trained: Path, tmp_path: Path) -> None:
    policy = train_tokenizer(vocabulary=290)  # another tokenizer than the discriminator's
    rollout = rollout_of(policy, TEXTS)
    assert rollout.texts == TEXTS
    reward = reward_of(trained, tmp_path)
    found: Rewards = reward.score(rollout)
    weights = found.criterion * found.verdict[:, :, None]
    model = reward.relevance._model
    assert model.tokenizer.get_vocab() != policy.get_vocab()
    for row, sample in enumerate(rollout.samples):
        length = int(rollout.mask[row].sum())
        for place, criterion in enumerate(sample.rubric):
            wanted = slow(model, criterion, rollout, row)
            assert weights[row, place, :length].tolist() == pytest.approx(wanted, abs=2e-5), (row, place)
        assert torch.isnan(weights[row, len(sample.rubric) :]).all()
    real = weights[0, 0, : int(rollout.mask[0].sum()) - 1]
    assert real.max() - real.min() > 0.05
    assert found.metrics["relevance_too_long"] == 0
    assert reward.needs() == {"offsets"}
    assert reward.tokenizer() is None  # it reads text


def test_the_end_may_be_left_without_weight_and_a_response_that_was_cut_off_has_none(
    trained: Path, tmp_path: Path
) -> None:
    rollout = rollout_of(train_tokenizer(), TEXTS[:1])
    length = int(rollout.mask.sum())
    whole = reward_of(trained, tmp_path).score(rollout).criterion[0, 0].abs()
    without = reward_of(trained, tmp_path, include_eos=False).score(rollout).criterion[0, 0].abs()
    assert whole[length - 1] > 0
    assert without[length - 1] == 0
    torch.testing.assert_close(whole[: length - 1], without[: length - 1])
    cut = rollout_of(train_tokenizer(), TEXTS[:1])
    cut.mask[:, -1] = cut.eos[:, -1] = False
    cut.offsets = [cut.offsets[0][:-1]]
    found = reward_of(trained, tmp_path).score(cut).criterion[0, 0].abs()
    torch.testing.assert_close(found[: length - 1], whole[: length - 1])
    assert found[length - 1] == 0, "padding"


def test_a_token_without_characters_weighs_what_the_end_does(trained: Path, tmp_path: Path) -> None:
    """The mark that sentencepiece puts before a first word: at 0 it would stand out from a response that is all relevant."""
    tokenizer = TOKENIZERS["metaspace"]()
    ids = [*tokenizer("\u4f60\u597d", add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    offsets = rollouts.offsets(tokenizer, ids)
    assert offsets[0] == (0, 0)
    tokens = rollouts.pad([[1]], [ids], pad_id=0, eos_ids=[tokenizer.eos_token_id])
    rollout = Rollout(
        **vars(tokens), group=torch.zeros(1).long(), samples=[Sample(id="0", prompt="?", rubric=CRITERIA[:1])],
        texts=[rollouts.decode(tokenizer, ids)], offsets=[offsets],
    )  # fmt: skip
    found = reward_of(trained, tmp_path).score(rollout).criterion[0, 0].abs()
    assert found[0] == found[-1] > 0
    last = reward_of(trained, tmp_path, include_eos=False).score(rollout).criterion[0, 0].abs()
    assert last[-1] == 0
    torch.testing.assert_close(last[:-1], found[:-1])


def test_pairs_go_through_the_model_in_batches(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = rollout_of(train_tokenizer(), TEXTS * 3)
    reward = reward_of(trained, tmp_path)
    model, sizes = reward.relevance._model, []
    rewards = model.rewards
    monkeypatch.setattr(model, "rewards", lambda part: sizes.append(len(part.mask)) or rewards(part))
    found = reward.score(rollout)
    pairs = sum(len(sample.rubric) for sample in rollout.samples)
    assert sum(sizes) == pairs > 20
    assert len(sizes) == -(-pairs // 4)
    reward.relevance.micro_batch_size = 1
    torch.testing.assert_close(reward.score(rollout).criterion, found.criterion, atol=2e-5, rtol=0, equal_nan=True)


def test_what_is_too_long_has_no_weights_and_is_counted(trained: Path, tmp_path: Path) -> None:
    rollout = rollout_of(train_tokenizer(), [TEXTS[0], CORPUS[0] * 5])
    reward = reward_of(trained, tmp_path, max_tokens=150)
    found = reward.score(rollout)
    assert torch.isfinite(found.criterion[0, 0]).all()
    assert torch.isnan(found.criterion[1]).all()
    assert torch.isfinite(found.response).all()  # the verdicts are known
    assert found.metrics["relevance_too_long"] == pytest.approx(2 / 3)
    nothing = reward_of(trained, tmp_path, max_tokens=1).score(rollout)
    assert torch.isnan(nothing.criterion).all()
    assert not nothing.token.any()


def test_truncated_weights_are_0_or_1(trained: Path, tmp_path: Path) -> None:
    rollout = rollout_of(train_tokenizer(), TEXTS)
    reward = reward_of(trained, tmp_path, name="discriminator_truncated")
    with torch.no_grad():
        reward.relevance._model.number.weight.mul_(20)
    weights = reward.score(rollout).criterion.abs()
    assert set(weights[~torch.isnan(weights)].tolist()) == {0.0, 1.0}
