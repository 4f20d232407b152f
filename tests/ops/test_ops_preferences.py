"""Losses of direct alignment against their papers' formulas, in value and gradient."""

from __future__ import annotations

import math

import pytest
import torch

from fgrl.base import ops

CASES = [(0.0, 0.0), (1.3, -0.4), (-0.7, 2.0), (-3.0, -5.0), (4.0, 4.0), (-0.2, 0.0), (25.0, -30.0)]
BETAS = [0.1, 0.5, 2.0]


def s(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slope(x: float) -> float:
    return s(x) * (1 - s(x))


def by_hand(
    objective: str,
    w: float,
    l: float,  # noqa: E741
    b: float,
    smooth: float,
    penalty: float,
) -> tuple[float, float, float]:
    """Value, d/dw and d/dl, as the papers print them."""
    if objective == "ipo":
        gap = w - l - 1 / (2 * b)
        return gap**2, 2 * gap, -2 * gap
    if objective == "apo_zero":
        return (1 - s(b * w)) + s(b * l), -b * slope(b * w), b * slope(b * l)
    if objective == "apo_down":
        both = b * slope(b * (w - l))
        return s(b * w) + (1 - s(b * (w - l))), b * slope(b * w) - both, both
    x = b * (w - l - penalty * max(0.0, -w))
    d_x = s(x) - (1 - smooth)  # of -(1-e) log s(x) - e log s(-x)
    d_w = b * (1 + (penalty if w < 0 else 0.0))
    return -(1 - smooth) * math.log(s(x)) - smooth * math.log(s(-x)), d_x * d_w, d_x * -b


@pytest.mark.parametrize(
    ("objective", "smooth", "penalty"),
    [
        ("dpo", 0.0, 0.0),
        ("dpo", 0.2, 0.0),
        ("dpo", 0.0, 5.0),
        ("ipo", 0.0, 0.0),
        ("apo_zero", 0.0, 0.0),
        ("apo_down", 0.0, 0.0),
    ],
)
@pytest.mark.parametrize("beta", BETAS)
def test_losses_and_gradients_are_the_closed_forms(objective: str, smooth: float, penalty: float, beta: float) -> None:
    w, l = (torch.tensor(column, dtype=torch.float64, requires_grad=True) for column in zip(*CASES, strict=True))  # noqa: E741
    losses = ops.preference_loss(w, l, objective, beta, label_smoothing=smooth, dpop_lambda=penalty)
    losses.sum().backward()
    wanted = [by_hand(objective, *case, beta, smooth, penalty) for case in CASES]
    assert losses.tolist() == pytest.approx([value for value, _, _ in wanted], rel=1e-9, abs=1e-12)
    assert w.grad.tolist() == pytest.approx([d for _, d, _ in wanted], rel=1e-7, abs=1e-12)
    assert l.grad.tolist() == pytest.approx([d for _, _, d in wanted], rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("beta", BETAS)
def test_where_policy_and_reference_agree_the_values_are_exact(dtype: torch.dtype, beta: float) -> None:
    zero = torch.zeros(3, dtype=dtype)
    half = torch.nn.functional.logsigmoid(torch.zeros((), dtype=dtype)).neg().item()
    for penalty in (0.0, 50.0):
        assert ops.preference_loss(zero, zero, "dpo", beta, dpop_lambda=penalty).tolist() == [half] * 3
    assert half == torch.tensor(2.0).log().to(dtype).item()
    assert ops.preference_loss(zero, zero, "apo_zero", beta).tolist() == [1.0] * 3
    assert ops.preference_loss(zero, zero, "apo_down", beta).tolist() == [1.0] * 3
    assert ops.preference_loss(zero.float(), zero.float(), "ipo", beta).tolist() == pytest.approx(
        [1 / (4 * beta**2)] * 3
    )


def test_the_penalty_of_dpo_positive_is_inside_the_sigmoid_and_only_for_winners_that_lost_probability() -> None:
    below, above, loser = torch.tensor(-0.5), torch.tensor(0.5), torch.tensor(-1.0)
    plain = [ops.preference_loss(w, loser, "dpo", 0.3) for w in (below, above)]
    positive = [ops.preference_loss(w, loser, "dpo", 0.3, dpop_lambda=4.0) for w in (below, above)]
    assert torch.equal(plain[1], positive[1])
    assert positive[0] > plain[0], "a winner below its reference costs more, not less"
    # inside: -log s(b (w - l - lambda max(0, -w))); outside it would be plain + 0.3 * 4 * 0.5
    assert float(positive[0]) == pytest.approx(math.log1p(math.exp(-0.3 * (0.5 - 4.0 * 0.5))))
    assert float(positive[0]) != pytest.approx(float(plain[0]) + 0.3 * 4.0 * 0.5, rel=1e-3)


def test_a_gradient_step_raises_a_winner_under_the_penalty_even_where_dpo_would_lower_both() -> None:
    """Two answers that share their weight: lowering the loser lowers the winner."""
    grads = {}
    for penalty in (0.0, 50.0):
        common = torch.tensor(-1.0, requires_grad=True)  # moves the winner once and the loser twice
        ops.preference_loss(common, 2 * common, "dpo", 0.1, dpop_lambda=penalty).backward()
        grads[penalty] = float(common.grad)
    assert grads[0.0] > 0, "DPO alone goes down"
    assert grads[50.0] < 0, "with the penalty the winner's probability goes up"


def test_settings_of_another_objective_are_refused() -> None:
    zero = torch.zeros(1)
    with pytest.raises(ValueError, match="objective is one of"):
        ops.preference_loss(zero, zero, "hinge", 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="belong to the objective dpo"):
        ops.preference_loss(zero, zero, "ipo", 0.1, label_smoothing=0.1)
    with pytest.raises(ValueError, match="belong to the objective dpo"):
        ops.preference_loss(zero, zero, "apo_down", 0.1, dpop_lambda=1.0)
