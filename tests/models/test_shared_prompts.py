"""Prompts read once for several rows: the same numbers and gradients as rows read whole."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_helpers import LORA, stir, tiny

from fgrl import models, rollouts
from fgrl.models import shared_prompts
from fgrl.training.steps import split
from fgrl.types import Tokens

LONG, SHORT = [1, 5, 9, 13, 8, 21, 34, 7, 11, 19], [1, 6, 4, 17]


def rows_of(*pairs: tuple[list[int], list[int]]) -> Tokens:
    return rollouts.pad([prompt for prompt, _ in pairs], [response for _, response in pairs], pad_id=0, eos_ids={2})


def mixed() -> Tokens:
    """Two prompts of different lengths in five rows, not side by side; responses of different lengths, one empty."""
    return rows_of((LONG, [3, 4, 5, 2]), (SHORT, [7]), (LONG, [6, 6]), (SHORT, []), (LONG, [8, 9, 10, 11, 12, 2]))


def whole(model: models.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "shares_prompts", lambda *, gradient: False)


@pytest.fixture
def trunk_tokens(monkeypatch):
    """How many tokens (padding included) went through the trunk, by pass."""
    seen: list[int] = []
    forward = models.LanguageModel.trunk.fget

    def counting(self):
        trunk = forward(self)
        if not getattr(trunk, "_counted", False):
            trunk.register_forward_pre_hook(
                lambda _m, _a, options: seen.append(options["input_ids"].numel()), with_kwargs=True
            )
            trunk._counted = True
        return trunk

    monkeypatch.setattr(models.LanguageModel, "trunk", property(counting))
    return seen


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_numbers_and_gradients_are_those_of_rows_read_whole(tiny_model_dir, attention, monkeypatch, trunk_tokens):
    model = tiny(tiny_model_dir, lora=LORA, attention=attention, trainable=True)
    stir(model)
    tokens, found = mixed(), []
    for read in ("shared", "whole"):
        if read == "whole":
            whole(model, monkeypatch)
        model.zero_grad()
        scores = model.score(tokens, entropy=True)
        (scores.logp.sum() + (scores.entropy * tokens.response_ids).sum()).backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found.append((scores.logp.detach(), scores.entropy.detach(), gradients))
    (logp, entropy, gradients), (logp_whole, entropy_whole, gradients_whole) = found
    torch.testing.assert_close(logp, logp_whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, entropy_whole, atol=1e-5, rtol=1e-5)
    assert gradients
    assert gradients.keys() == gradients_whole.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_whole[name], atol=2e-4, rtol=1e-4, msg=name)
    assert trunk_tokens == [2 * 10, 5 * 6, 5 * 16]


def test_the_reference_and_both_heads_share_as_well(tiny_model_dir, monkeypatch):
    policy, values = tiny(tiny_model_dir, lora=LORA, trainable=True), tiny(tiny_model_dir, head="scalar")
    stir(policy)
    tokens = mixed()
    with torch.no_grad():
        ask = lambda: (policy.score(tokens, adapter=False).logp, values.values(tokens), values.rewards(tokens))  # noqa: E731
        shared = ask()
        whole(policy, monkeypatch)
        whole(values, monkeypatch)
        for mine, wanted in zip(shared, ask(), strict=True):
            torch.testing.assert_close(mine, wanted, atol=1e-5, rtol=1e-5)


def test_rows_are_read_whole_where_sharing_is_not_possible_or_spares_little(tiny_model_dir, trunk_tokens):
    model = tiny(tiny_model_dir, trainable=True)
    model.score(rows_of((LONG, [3]), (SHORT, [4])))  # nothing in common
    assert trunk_tokens == [2 * 11]
    trunk_tokens.clear()
    model.score(rows_of((SHORT[:1], [3] * 20), (SHORT[:1], [4] * 20)))  # one token of 42
    assert trunk_tokens == [2 * 21]
    trunk_tokens.clear()
    model.sharded = True  # every process has to make the same passes
    model.score(rows_of((LONG, [3]), (LONG, [4])))
    assert trunk_tokens == [2 * 11]


def test_with_checkpointing_only_passes_without_gradient_share(tiny_model_dir, trunk_tokens):
    model = tiny(tiny_model_dir, trainable=True, gradient_checkpointing=True)
    tokens = rows_of((LONG, [3]), (LONG, [4]))
    model.score(tokens).logp.sum().backward()
    assert trunk_tokens == [2 * 11]
    trunk_tokens.clear()
    with torch.no_grad():
        model.score(tokens)
    assert trunk_tokens == [10, 2]


def test_a_prompt_that_is_another_with_padding_is_another_prompt():
    tokens = rows_of(([0, 5], [3]), ([5], [3]), ([0, 5], [4]))
    first, place = shared_prompts.distinct_prompts(tokens)
    assert len(first) == 2
    assert place[0] == place[2] != place[1]
    assert torch.equal(tokens.prompt_ids[first][place], tokens.prompt_ids)
    assert torch.equal(tokens.prompt_mask[first][place], tokens.prompt_mask)


lengths = st.integers(1, 40)


@given(
    groups=st.lists(st.tuples(lengths, st.lists(st.integers(0, 60), min_size=1, max_size=5)), max_size=6),
    pieces=st.integers(1, 8),
    each=st.integers(1, 2),
    shared=st.booleans(),
)
def test_an_arrangement_is_a_permutation_and_never_costs_more_than_sorting_by_length(groups, pieces, each, shared):
    prompts = [number for number, (_, responses) in enumerate(groups) for _ in responses]
    prompt_lengths = [groups[number][0] for number in prompts]
    responses = [length for _, responses in groups for length in responses]
    sizes = [len(part) for part in split(prompts, pieces)]

    def cost(order):
        total, left = 0, list(order)
        for size in sizes:
            part, left = left[:size], left[size:]
            if part:
                prompt, response = max(prompt_lengths[i] for i in part), max(responses[i] for i in part)
                rows, different = each * len(part), len({prompts[i] for i in part})
                reads_once = shared and (rows - different) * prompt >= 0.1 * rows * (prompt + response)
                total += (different if reads_once else rows) * prompt + rows * response
        return total

    order = models.arrange(prompts, prompt_lengths, responses, sizes, each=each, shared=shared)
    assert Counter(order) == Counter(range(len(prompts)))
    by_length = sorted(range(len(prompts)), key=lambda i: -(prompt_lengths[i] + responses[i]))
    assert cost(order) <= cost(by_length)


def test_the_rows_of_a_prompt_go_together_where_that_spares_the_most():
    order = models.arrange(list("abcdabcd"), [30] * 8, [5, 6, 7, 8, 8, 7, 6, 5], [2] * 4)
    assert {frozenset("abcdabcd"[i] for i in order[start : start + 2]) for start in (0, 2, 4, 6)} == {
        frozenset(name) for name in "abcd"
    }


def test_a_pass_without_gradient_keeps_the_prompts_alone(tiny_model_dir, monkeypatch):
    """Not the keys and values of every row in every layer."""
    kept: list[torch.Size] = []
    made = shared_prompts._PromptCache

    class Watched(made):
        def __del__(self):
            kept.extend(layer.keys.shape for layer in self.layers)

    monkeypatch.setattr(shared_prompts, "_PromptCache", Watched)
    with torch.no_grad():
        tiny(tiny_model_dir).score(mixed())
    assert kept
    assert {(shape[0], shape[2]) for shape in kept} == {(2, len(LONG))}
