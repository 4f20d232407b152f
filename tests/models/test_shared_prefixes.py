"""Pairs read as one sequence: the numbers and gradients of rows read whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import LORA, stir, tiny
from test_shared_prompts_families import SHARED, WHOLE, trunk

from fgrl import models, rollouts
from fgrl.models import shared_prefixes
from fgrl.models.shared_prefixes import pack
from fgrl.types import Tokens

PROMPT = [1, 5, 9, 13, 8, 21, 34, 7]


def rows_of(*pairs: tuple[list[int], list[int]]) -> Tokens:
    return rollouts.pad([prompt for prompt, _ in pairs], [response for _, response in pairs], pad_id=0, eos_ids={2})


PAIRS: dict[str, list[tuple[list[int], list[int]]]] = {
    "an edit in the middle": [(PROMPT, [3, 4, 5, 6, 2]), (PROMPT, [3, 4, 8, 9, 6, 2])],
    "equal answers": [(PROMPT, [3, 4, 5, 2]), (PROMPT, [3, 4, 5, 2])],
    "one begins the other": [(PROMPT, [3, 4]), (PROMPT, [3, 4, 5, 6, 2])],
    "nothing but the prompt": [(PROMPT, [3, 4, 5]), (PROMPT, [6, 7])],
    "an empty answer": [(PROMPT, []), (PROMPT, [6, 7, 2])],
    "two pairs": [
        (PROMPT, [3, 4, 5, 6, 2]), (PROMPT, [3, 4, 8, 2]), (PROMPT[:4], [3, 4, 5, 6, 7]), (PROMPT[:4], [3, 4, 5, 6, 9, 9]),
    ],
}  # fmt: skip


def both_ways(
    model: Any, tokens: Tokens, weight: torch.Tensor, **options: Any
) -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    """Log-probabilities and gradients, packed and with rows read whole."""
    for packed in (True, False):
        model.zero_grad()
        with pytest.MonkeyPatch.context() as patch:
            if not packed:
                patch.setattr(model, "packs_pairs", lambda: False)
                patch.setattr(model, "shares_prompts", lambda *, gradient: False)
            logp = model.score(tokens, pairs=True, **options).logp
            (logp * weight).sum().backward()
        yield logp.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(model: Any, tokens: Tokens, **options: Any) -> None:
    weight = torch.randn(tokens.mask.shape, generator=torch.Generator().manual_seed(3))
    (logp, gradient), (whole_logp, whole_gradient) = both_ways(model, tokens, weight, **options)
    torch.testing.assert_close(logp, whole_logp, atol=1e-5, rtol=1e-5)
    assert not logp[~tokens.mask].any()
    assert gradient.keys() == whole_gradient.keys()
    for name, value in gradient.items():
        torch.testing.assert_close(value, whole_gradient[name], atol=2e-5, rtol=1e-4, msg=name)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shapes of the inputs of packed passes."""
    seen: list[tuple[int, int]] = []
    read = models.LanguageModel._packed_states

    def watched(self: Any, packed: Any, **options: Any) -> Any:
        seen.append(tuple(packed.ids.shape))
        return read(self, packed, **options)

    monkeypatch.setattr(models.LanguageModel, "_packed_states", watched)
    return seen


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_numbers_and_gradients_are_those_of_rows_read_whole(
    name: str, attention: str, tiny_model_dir: Any, passes: list[Any]
) -> None:
    model = tiny(tiny_model_dir, lora=LORA.model_copy(update={"dropout": 0.0}), attention=attention, trainable=True)
    stir(model)
    tokens = rows_of(*PAIRS[name])
    assert_same(model, tokens)
    assert passes, "the pair was packed"
    if name == "an edit in the middle":
        assert passes == [(1, len(PROMPT) + 2 + 3 + 4)]


def test_the_output_layer_reads_shared_tokens_once_and_in_chunks(
    tiny_model_dir: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = tiny(tiny_model_dir, trainable=True), []
    layer = type(model.output_layer)
    read = layer.forward

    def watched(self: Any, hidden: torch.Tensor, labels: torch.Tensor, **options: Any) -> Any:
        seen.append((len(labels), options["chunk"]))
        return read(self, hidden, labels, **options)

    monkeypatch.setattr(layer, "forward", watched)
    tokens = rows_of(*PAIRS["an edit in the middle"])
    model.score(tokens, pairs=True, chunk=3)
    assert seen == [(2 + 3 + 4, 3)]
    assert int(tokens.mask.sum()) == 11


def test_unfused_attention_gives_the_same_numbers(tiny_model_dir: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, found = tiny(tiny_model_dir), []
    for few in (models.language_model.FEW_SCORES_OF_PAIRS, 0):
        monkeypatch.setattr(models.language_model, "FEW_SCORES_OF_PAIRS", few)
        with torch.no_grad():
            found.append(model.score(rows_of(*PAIRS["two pairs"]), pairs=True).logp)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    assert model.trunk.config._attn_implementation == "sdpa"


def test_all_weights_and_recomputed_activations(tiny_model_dir: Any, passes: list[Any]) -> None:
    for checkpointing in (False, True):
        model = tiny(tiny_model_dir, trainable=True, gradient_checkpointing=checkpointing).train()
        assert_same(model, rows_of(*PAIRS["an edit in the middle"]))
    assert len(passes) == 2


def test_entropies_and_temperatures_go_with_the_tokens(tiny_model_dir: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(tiny_model_dir)
    tokens = rows_of(*PAIRS["two pairs"])
    with torch.no_grad():
        packed = model.score(tokens, pairs=True, entropy=True, temperature=0.7)
        whole = model.score(tokens, entropy=True, temperature=0.7)
    torch.testing.assert_close(packed.logp, whole.logp, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed.entropy, whole.entropy, atol=1e-5, rtol=1e-5)


ids = st.integers(3, 40)


@pytest.fixture(scope="module")
def policy(tiny_model_dir: Any) -> Any:
    model = tiny(tiny_model_dir, lora=LORA.model_copy(update={"dropout": 0.0}), trainable=True)
    stir(model)
    return model


@settings(max_examples=25, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(
            st.lists(ids, min_size=1, max_size=9), st.lists(ids, max_size=6),
            st.lists(ids, max_size=5), st.lists(ids, max_size=5),
        ),
        min_size=1, max_size=3,
    )
)  # fmt: skip
def test_random_pairs_are_read_the_same_both_ways(policy: Any, pairs: list[tuple[list[int], ...]]) -> None:
    rows = [(prompt, [*common, *own]) for prompt, common, *tails in pairs for own in tails]
    if any(response for _, response in rows):
        assert_same(policy, rows_of(*rows))


@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(3, 5), min_size=1, max_size=4), st.lists(st.integers(3, 5), max_size=4)),
        min_size=2, max_size=2,
    )
)  # fmt: skip
def test_every_response_token_has_the_state_of_what_stands_before_it(rows: list[tuple[list[int], list[int]]]) -> None:
    """Also where prompts differ in length or have nothing in common: the path through the packed sequence spells the row."""
    tokens = rows_of(*rows)
    packed = pack(tokens, 2, pad_id=0)
    if packed is None:
        return
    flat_ids, allowed = packed.ids.flatten(), packed.allowed()[:, 0]
    flat_positions = packed.positions.flatten()
    place = iter(packed.place.tolist())
    for prompt, response in rows:
        whole = prompt + response
        for position in range(len(prompt), len(whole)):
            entry = next(place)
            assert int(packed.labels[entry]) == whole[position]
            seen = allowed[0, int(packed.before[entry])].nonzero().flatten()
            assert flat_ids[seen].tolist() == whole[:position]
            assert flat_positions[seen].tolist() == list(range(position))
    assert next(place, None) is None


def test_rows_with_little_in_common_are_not_packed(tiny_model_dir: Any, passes: list[Any]) -> None:
    assert pack(rows_of(([1, 5], [3] * 30), ([1, 5], [4] * 30)), 2, 0) is None
    model = tiny(tiny_model_dir, trainable=True)
    model.sharded = True  # every process has to make the same passes
    assert_same(model, rows_of(*PAIRS["an edit in the middle"]))
    assert passes == []


def test_a_row_without_prompt_or_with_too_many_tokens_is_refused_as_elsewhere(tiny_model_dir: Any) -> None:
    model = tiny(tiny_model_dir)
    with pytest.raises(ValueError, match="every prompt needs a token"):
        model.score(rows_of(([], [3, 4]), ([], [3, 4])), pairs=True)
    model.max_tokens = 10
    with pytest.raises(models.language_model.DataError, match="reads at most 10 tokens"):
        model.score(rows_of(*PAIRS["an edit in the middle"]), pairs=True)


MORE = {"olmo2": SHARED["llama"], "mistral, no window": SHARED["llama"] | {"sliding_window": None},
        "qwen2, no window": SHARED["llama"], "smollm3": SHARED["llama"]}  # fmt: skip
PACKED = {"llama", "qwen3", "phi3", "gpt2", "gpt_neox", "olmo2", "mistral, no window", "qwen2, no window"}


@pytest.mark.parametrize("name", sorted({**SHARED, **WHOLE, **MORE}))
@torch.no_grad()
def test_architectures_that_take_a_mask_of_our_own(name: str) -> None:
    """Packed states are those of rows read whole in each architecture that is packed; sliding windows and others are not."""
    net = trunk(name, {**SHARED, **WHOLE, **MORE}[name])
    assert shared_prefixes.can_pack(net) == (name in PACKED)
    if name not in PACKED:
        return
    tokens = rows_of(*PAIRS["an edit in the middle"])
    packed = pack(tokens, 2, 0)
    assert packed is not None
    states = net(
        input_ids=packed.ids, attention_mask=packed.allowed(), position_ids=packed.positions, use_cache=False
    ).last_hidden_state.flatten(0, 1)[packed.before][packed.place]
    mask = torch.cat([tokens.prompt_mask, tokens.mask], 1)
    whole = net(
        input_ids=torch.cat([tokens.prompt_ids, tokens.response_ids], 1), attention_mask=mask.long(),
        position_ids=(mask.long().cumsum(1) - 1).clamp_min(0), use_cache=False,
    ).last_hidden_state[:, len(PROMPT) - 1 : -1][tokens.mask]  # fmt: skip
    torch.testing.assert_close(states, whole, atol=2e-5, rtol=1e-4)
