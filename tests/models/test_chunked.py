"""The pass in chunks against the whole [N,V] computed at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fgrl.models.chunked import ScoringLinear, chunk_rows, chunked_kl, chunked_scores, scores_through

N, H, V = 13, 8, 37


def inputs(dtype: torch.dtype = torch.float32, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(N, H, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, H, generator=generator, dtype=dtype, requires_grad=True)
    shift = torch.randn(V, generator=generator, dtype=dtype, requires_grad=True) if bias else None
    return hidden, weight, shift, torch.randint(V, (N,), generator=generator)


def naive(hidden, weight, bias, labels, temperature=1.0, entropy_temperature=None):
    logits = (
        torch.nn.functional.linear(hidden, weight, bias).float()
        if hidden.dtype != torch.float64
        else hidden @ weight.t() + bias
    )
    logs = torch.log_softmax(logits / temperature, 1)
    other = torch.log_softmax(logits / (entropy_temperature or temperature), 1)
    return logs.gather(1, labels[:, None]).squeeze(1), -(other.exp() * other).sum(1)


@pytest.mark.parametrize("chunk", [1, 5, 13, 1000])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("temperature", "entropy_temperature"), [(1.0, None), (0.7, None), (0.7, 1.0)])
def test_values_and_gradients_are_those_of_the_whole(chunk, bias, temperature, entropy_temperature):
    hidden, weight, shift, labels = inputs(bias=bias)
    leaves = [leaf for leaf in (hidden, weight, shift) if leaf is not None]
    logp, nats = chunked_scores(
        hidden,
        weight,
        shift,
        labels,
        temperature=temperature,
        entropy=True,
        entropy_temperature=entropy_temperature,
        chunk=chunk,
    )
    wanted_logp, wanted_nats = naive(hidden, weight, shift, labels, temperature, entropy_temperature)
    torch.testing.assert_close(logp, wanted_logp, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(nats, wanted_nats, atol=1e-5, rtol=1e-5)
    weights = torch.linspace(-1, 2, N)
    got = torch.autograd.grad((weights * logp + weights.flip(0) * nats).sum(), leaves)
    wanted = torch.autograd.grad((weights * wanted_logp + weights.flip(0) * wanted_nats).sum(), leaves)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("entropy_temperature", [None, 1.0])
def test_gradient_check_in_double(entropy_temperature):
    hidden, weight, bias, labels = inputs(torch.float64)

    def both(hidden, weight, bias):
        logp, nats = chunked_scores(
            hidden,
            weight,
            bias,
            labels,
            temperature=1.3,
            entropy=True,
            entropy_temperature=entropy_temperature,
            chunk=4,
        )
        return torch.cat([logp, nats])

    assert torch.autograd.gradcheck(both, (hidden, weight, bias))
    assert torch.autograd.gradcheck(lambda h, w, b: chunked_scores(h, w, b, labels, chunk=4)[0], (hidden, weight, bias))


def test_a_frozen_weight_gets_no_gradient_and_hidden_gets_the_same():
    hidden, weight, bias, labels = inputs()
    whole = torch.autograd.grad(chunked_scores(hidden, weight, bias, labels, chunk=4)[0].sum(), hidden)[0]
    frozen = chunked_scores(hidden, weight.detach(), bias.detach(), labels, chunk=4)[0]
    torch.testing.assert_close(torch.autograd.grad(frozen.sum(), hidden)[0], whole)


def test_autocast_scores_as_a_linear_layer_under_autocast_would():
    hidden, weight, bias, labels = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        logits = torch.nn.functional.linear(hidden, weight).float() + bias
        logp, nats = chunked_scores(hidden, weight, bias, labels, entropy=True, chunk=4)
    logs = torch.log_softmax(logits, 1)
    assert logp.dtype == nats.dtype == torch.float32
    torch.testing.assert_close(logp, logs.gather(1, labels[:, None]).squeeze(1), atol=1e-5, rtol=1e-5)
    (logp.sum() + nats.sum()).backward()  # outside autocast, as Lightning does
    full = torch.autograd.grad(sum(x.sum() for x in naive(hidden, weight, bias, labels)), (hidden, weight))
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
    torch.testing.assert_close(hidden.grad, full[0], atol=0.15, rtol=0.05)
    torch.testing.assert_close(weight.grad, full[1], atol=0.15, rtol=0.05)


def test_bfloat16_weights_give_float32_scores_and_bfloat16_gradients():
    hidden, weight, _, labels = inputs(torch.bfloat16, bias=False)
    logp, nats = chunked_scores(hidden, weight, None, labels, entropy=True, chunk=4)
    (logp + nats).sum().backward()
    assert (logp.dtype, nats.dtype) == (torch.float32, torch.float32)
    assert (hidden.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.bfloat16)


def test_no_rows_give_empty_scores_and_zero_gradients():
    hidden, weight, bias, _ = inputs()
    logp, nats = chunked_scores(hidden[:0], weight, bias, torch.empty(0, dtype=torch.long), entropy=True)
    (logp.sum() + nats.sum()).backward()
    assert logp.shape == nats.shape == (0,)
    assert weight.grad.abs().sum() == 0


def test_an_impossible_token_adds_nothing_to_the_entropy():
    weight = torch.tensor([[1.0], [1.0], [0.0]])
    bias = torch.tensor([0.0, 0.0, -torch.inf])
    logp, nats = chunked_scores(torch.ones(1, 1), weight, bias, torch.tensor([0]), entropy=True)
    torch.testing.assert_close(nats, torch.tensor([2.0]).log())
    torch.testing.assert_close(logp, torch.tensor([0.5]).log())


def test_an_impossible_token_adds_nothing_to_the_gradient():
    hidden, bias = torch.ones(1, 1, requires_grad=True), torch.tensor([0.0, 0.5, -torch.inf])
    weight = torch.tensor([[1.0], [2.0], [0.0]])
    got = torch.autograd.grad(chunked_scores(hidden, weight, bias, torch.tensor([0]), entropy=True)[1].sum(), hidden)[0]
    possible = chunked_scores(hidden, weight[:2], bias[:2], torch.tensor([0]), entropy=True)[1]
    torch.testing.assert_close(got, torch.autograd.grad(possible.sum(), hidden)[0])


@pytest.mark.parametrize("whose", ["policy", "reference"])
def test_a_model_that_has_diverged_is_not_taken_for_its_reference(whose):
    """One position of one model has NaN logits: KL, entropy and log-probability are NaN there, and there alone."""
    hidden, weight, bias, labels = (tensor.detach() for tensor in inputs())
    broken = hidden.clone()
    broken[1] = torch.nan
    layer = lambda rows: torch.nn.functional.linear(rows, weight, bias)  # noqa: E731
    pair = (broken, hidden) if whose == "policy" else (hidden, broken)
    kl = chunked_kl(pair[0], layer, pair[1], layer, chunk=4)
    scores = [chunked_scores(broken, weight, bias, labels, entropy=True, chunk=4)]
    scores.append(scores_through(layer, broken, labels, entropy=True, chunk=4))
    for values in (kl, *(value for pair in scores for value in pair)):
        assert values.isnan().nonzero().flatten().tolist() == [1]


def test_kl_where_an_outcome_is_impossible():
    allowed, excluded = torch.zeros(1, 3), torch.tensor([[0.0, 0.0, -torch.inf]])
    same = lambda logits: logits.clone()  # noqa: E731
    torch.testing.assert_close(chunked_kl(excluded, same, allowed, same), torch.tensor([1.5]).log())
    assert chunked_kl(excluded, same, excluded, same).tolist() == [0.0]
    assert chunked_kl(allowed, same, excluded, same).tolist() == [torch.inf]


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_without_a_distribution_is_refused(temperature):
    hidden, weight, bias, labels = inputs()
    with pytest.raises(ValueError, match="temperature above 0"):
        chunked_scores(hidden, weight, bias, labels, temperature=temperature)


@pytest.mark.parametrize(("temperature", "entropy_temperature"), [(1.0, None), (0.7, 1.0)])
def test_an_output_layer_that_is_no_matrix_scores_the_same(temperature, entropy_temperature):
    hidden, weight, bias, labels = inputs()
    options = {"temperature": temperature, "entropy": True, "entropy_temperature": entropy_temperature, "chunk": 4}
    got = scores_through(lambda rows: torch.nn.functional.linear(rows, weight, bias), hidden, labels, **options)
    wanted = chunked_scores(hidden, weight, bias, labels, **options)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    gradients = [
        torch.autograd.grad(logp.sum() + 2 * nats.sum(), (hidden, weight, bias)) for logp, nats in (got, wanted)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_kl_is_summed_over_the_vocabulary():
    hidden, weight, bias, _ = inputs()
    other = hidden.detach() + 0.3
    layer = lambda rows: torch.nn.functional.linear(rows, weight, bias)  # noqa: E731
    p, q = (torch.log_softmax(layer(x) / 0.7, 1) for x in (hidden, other))
    got = chunked_kl(hidden, layer, other, layer, temperature=0.7, chunk=4)
    torch.testing.assert_close(got, torch.nn.functional.kl_div(q, p, log_target=True, reduction="none").sum(1))
    assert got.min() > 0
    with torch.no_grad():
        torch.testing.assert_close(chunked_kl(hidden, layer, other, layer, temperature=0.7, chunk=4), got.detach())


def test_the_gradient_of_the_kl_is_that_of_whole_distributions():
    """Of both models, and nothing where an outcome is impossible."""
    hidden, weight, bias, _ = inputs()
    other = (hidden.detach() + 0.3).requires_grad_()
    layer = lambda rows: torch.nn.functional.linear(rows, weight, bias)  # noqa: E731
    p, q = (torch.log_softmax(layer(x), 1) for x in (hidden, other))
    wanted = torch.autograd.grad((p.exp() * (p - q)).sum(1).square().sum(), (hidden, other, weight, bias))
    for chunk in (4, None):
        kl = chunked_kl(hidden, layer, other, layer, chunk=chunk)
        for one, two in zip(torch.autograd.grad(kl.square().sum(), (hidden, other, weight, bias)), wanted, strict=True):
            torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-4)
    barred = torch.ones(len(hidden), dtype=torch.bool), torch.tensor([1])
    kl = chunked_kl(hidden, layer, other, layer, barred=barred)
    assert all(bool(part.isfinite().all()) for part in torch.autograd.grad(kl.sum(), (hidden, other, weight, bias)))
    assert chunked_kl(hidden[:0], layer, other[:0], layer).shape == (0,)


def test_no_tensor_as_large_as_all_logits_is_ever_made():
    """Every tensor that the pass makes, forward and backward, is a chunk's or one of the inputs'."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            made = function(*args, **(kwargs or {}))
            for tensor in made if isinstance(made, tuple | list) else [made]:
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.numel())
            return made

    hidden, weight, bias, labels = inputs()
    with Watch():
        logp, nats = chunked_scores(hidden, weight, bias, labels, entropy=True, chunk=4)
        (logp + nats).sum().backward()
    assert largest == max(4 * V, V * H, N * H)
    assert largest < N * V


def test_a_chunk_holds_16_megabytes_of_logits():
    assert chunk_rows(49152) == 85
    assert chunk_rows(49152, "cuda") == 682
    assert chunk_rows(10**9) == 16


def test_a_scoring_layer_is_still_a_linear_layer():
    layer = torch.nn.Linear(H, V)
    hidden, _, _, labels = inputs()
    wanted = layer(hidden)
    ScoringLinear.adopt(layer)
    assert torch.equal(layer(hidden), wanted)
    torch.testing.assert_close(
        layer(hidden, labels)[0], torch.log_softmax(wanted, 1).gather(1, labels[:, None]).squeeze(1)
    )
