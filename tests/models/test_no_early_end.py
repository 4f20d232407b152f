"""Scores where no end token could be drawn, against numpy over the whole vocabulary without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from model_helpers import LORA, more_padding, stir, tiny

from fgrl import models, rollouts
from fgrl.models.chunked import chunked_kl, chunked_scores, scores_through

N, H, V = 7, 4, 11
ENDS = [2, 9]
ROWS = [True, False, True, True, False, False, True]
BARRED = torch.tensor(ROWS), torch.tensor(ENDS)


def inputs() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    hidden, weight, bias = (torch.randn(*size, generator=generator).double() for size in ((N, H), (V, H), (V,)))
    labels = torch.tensor([0, 2, 3, 10, 9, 1, 5])  # an end where one is possible, and none elsewhere
    return hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), labels


def by_hand(logits: torch.Tensor, temperature: float) -> np.ndarray:
    """Probabilities [N,V] when the ends are impossible in `ROWS`."""
    weights = np.exp(logits.detach().double().numpy() / temperature)
    weights[np.ix_(ROWS, ENDS)] = 0.0
    return weights / weights.sum(1, keepdims=True)


def entropy(p: np.ndarray) -> np.ndarray:
    return np.array([-sum(x * np.log(x) for x in row if x > 0) for row in p])


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("way", ["matrix", "module"])
def test_probability_without_the_ends_and_its_entropy(way: str, chunk: int) -> None:
    hidden, weight, bias, labels = inputs()
    options = {"temperature": 0.7, "entropy": True, "chunk": chunk, "barred": BARRED}
    if way == "matrix":
        logp, nats = chunked_scores(hidden, weight, bias, labels, **options)
    else:
        logp, nats = scores_through(lambda states: states @ weight.t() + bias, hidden, labels, **options)
    p = by_hand(hidden @ weight.t() + bias, 0.7)
    np.testing.assert_allclose(logp.detach(), np.log(p[np.arange(N), labels]), atol=1e-5)
    np.testing.assert_allclose(nats.detach(), entropy(p), atol=1e-5)


@pytest.mark.parametrize("trained", [(True, True, True), (True, False, False)])
def test_gradients_by_finite_differences(trained: tuple[bool, ...]) -> None:
    *leaves, labels = inputs()
    leaves = [leaf.detach().requires_grad_(has) for leaf, has in zip(leaves, trained, strict=True)]

    def both(hidden, weight, bias):  # type: ignore[no-untyped-def]
        return torch.cat(
            chunked_scores(hidden, weight, bias, labels, temperature=1.3, entropy=True, chunk=3, barred=BARRED)
        )

    assert torch.autograd.gradcheck(both, leaves)


@pytest.mark.parametrize("way", ["matrix", "module"])
def test_an_end_that_was_impossible_has_a_finite_gradient_where_the_loss_leaves_it_out(way: str) -> None:
    hidden, weight, bias, labels = inputs()
    labels[0] = ENDS[0]
    if way == "matrix":
        logp, nats = chunked_scores(hidden, weight, bias, labels, entropy=True, barred=BARRED)
    else:
        logp, nats = scores_through(lambda x: x @ weight.t() + bias, hidden, labels, entropy=True, barred=BARRED)
    assert logp[0] == -torch.inf
    (torch.where(torch.arange(N) > 0, logp, 0.0).sum() + nats.sum()).backward()
    assert all(bool(torch.isfinite(leaf.grad).all()) for leaf in (hidden, weight, bias))


def test_full_kl_without_the_ends() -> None:
    hidden, weight, bias, _labels = inputs()
    other = hidden.detach() * 0.5 + 0.1
    kl = chunked_kl(
        hidden, lambda x: x @ weight.t() + bias, other, lambda x: x @ weight.t(), temperature=0.7, barred=BARRED
    )
    p, q = by_hand(hidden @ weight.t() + bias, 0.7), by_hand(other @ weight.t(), 0.7)
    wanted = [sum(a * np.log(a / b) for a, b in zip(*rows, strict=True) if a > 0) for rows in zip(p, q, strict=True)]
    np.testing.assert_allclose(kl.detach(), wanted, atol=1e-5)
    assert bool(torch.autograd.grad(kl.sum(), hidden)[0].isfinite().all())


# -- a whole model: padding, shared prompts, pairs read as one sequence, adapted output layers ---------------------------

LONG = [1, 5, 9, 13, 8, 21, 34, 7, 11, 19]
PROMPTS = [LONG, LONG, [1, 6], LONG[:6], LONG[:6], [1, 6]]
RESPONSES = [
    [70, 71, 72, 2],
    [70, 71, 80, 90, 2],
    [80, 81, 82, 3],
    [90, 91],
    [90, 91, 92, 93, 94, 95],
    [60, 61, 62, 63],
]
LEAST = 3


def drawn(prompts: list[list[int]] = PROMPTS, responses: list[list[int]] = RESPONSES):  # type: ignore[no-untyped-def]
    return rollouts.pad(prompts, responses, pad_id=0, eos_ids={2, 3}, min_new_tokens=LEAST)


def one_by_one(model: models.LanguageModel, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies [B,T], each row read whole and alone, by a softmax over what could be drawn."""
    whole = drawn()
    logp, nats = torch.zeros(whole.mask.shape), torch.zeros(whole.mask.shape)
    for row, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        alone = rollouts.pad([prompt], [response], pad_id=0, eos_ids={2, 3})
        logits = model.logits(model.states(alone)).float() / temperature
        logits[:LEAST, [2, 3]] = -torch.inf
        logs = logits.log_softmax(1)
        logp[row, : len(response)] = logs[torch.arange(len(response)), response]
        nats[row, : len(response)] = -(logs.exp() * logs.masked_fill(logs == -torch.inf, 0.0)).sum(1)
    return logp, nats


@pytest.fixture(params=["plain", "adapter", "adapted output layer"])
def model(request: pytest.FixtureRequest, tiny_model_dir):  # type: ignore[no-untyped-def]
    lora = LORA.model_copy(update={"dropout": 0.0})
    if request.param == "plain":
        return tiny(tiny_model_dir, trainable=True)
    targets = {"targets": ["q_proj", "lm_head"]} if request.param == "adapted output layer" else {}
    model = tiny(tiny_model_dir, trainable=True, lora=lora.model_copy(update=targets))
    stir(model)
    return model


def gradients(model: models.LanguageModel, logp: torch.Tensor, nats: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    weight = torch.linspace(-1, 2, logp.numel()).reshape(logp.shape)
    (weight * logp + weight.flip(0) * nats).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("reading", ["shared prompts", "whole rows", "pairs", "more padding"])
def test_scores_and_gradients_of_a_model(model, reading: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    tokens = drawn()
    if reading == "whole rows":
        monkeypatch.setattr(model, "shares_prompts", lambda *, gradient: False)
    if reading == "more padding":
        no_end = torch.nn.functional.pad(tokens.no_end, (0, 4))
        tokens = replace(more_padding(tokens, 3, 4, 0), no_end=no_end)
    wanted = one_by_one(model, 0.8)
    scores = model.score(tokens, temperature=0.8, entropy=True, pairs=reading == "pairs", chunk=4)
    width = wanted[0].shape[1]
    got = scores.logp[:, :width], scores.entropy[:, :width]
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), atol=2e-5, rtol=1e-4)
    for (name, one), other in zip(gradients(model, *got).items(), gradients(model, *wanted).values(), strict=True):
        assert float((one - other).norm()) <= 1e-4 * float(other.norm()), name


def test_some_of_the_tokens(tiny_model_dir) -> None:  # type: ignore[no-untyped-def]
    model, tokens = tiny(tiny_model_dir), drawn()
    only = tokens.mask & (torch.arange(tokens.mask.shape[1]) % 2 == 0)
    with torch.no_grad():
        every, some = model.score(tokens), model.score_states(model.states(tokens), tokens, only=only)
    torch.testing.assert_close(some.logp, torch.where(only, every.logp, 0.0))


def test_the_bound_travels_with_rows(tiny_model_dir) -> None:  # type: ignore[no-untyped-def]
    """Micro-batches are trimmed parts in another order."""
    model, tokens = tiny(tiny_model_dir), drawn()
    with torch.no_grad():
        whole = model.score(tokens).logp
        parts = rollouts.in_micro_batches(tokens, lambda part: {"logp": model.score(part).logp}, 2)["logp"]
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
    assert tokens.no_end.sum(1).tolist() == [3, 3, 3, 2, 3, 3]
