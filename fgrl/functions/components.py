"""What the methods of components returned, checked where they are called, so that a mistake in a user's class is reported as theirs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl import lazy
from fgrl.errors import UserCodeError
from fgrl.functions.reporting import report
from fgrl.functions.returned import shape
from fgrl.registry.names import name_of
from fgrl.registry.outside import is_user_file
from fgrl.registry.settings import Component
from fgrl.types import Rewards, Rollout, Segmentable

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


def checked_rewards(reward: Component, value: Any, rollout: Rollout) -> Rewards:
    """What a reward's `score` returned for a rollout of B responses of at most T tokens. Raises `UserCodeError` (TypeError for a reward
    of fgrl itself)."""
    rows, tokens = rollout.mask.shape
    expected = (
        f"Rewards (fgrl.types): response [{rows}], token [{rows}, {tokens}], credit_mask [{rows}, {tokens}] of bool"
    )
    if not isinstance(value, Rewards):
        raise _wrong(
            reward, "score", shape(value), expected,
            "a function that returns a list is the reward {name: function, path: file.py:name}",
        )  # fmt: skip
    for name, tensor, wanted in (
        ("response", value.response, [rows]),
        ("token", value.token, [rows, tokens]),
        ("credit_mask", value.credit_mask, [rows, tokens]),
    ):
        if list(tensor.shape) != wanted:
            raise _wrong(reward, "score", f"{name} of the shape {list(tensor.shape)}", expected)
        if tensor.requires_grad:
            raise _wrong(reward, "score", f"{name} that is part of an autograd graph", expected, "detach() it")
    if value.credit_mask.dtype != torch.bool:
        raise _wrong(reward, "score", f"credit_mask of {value.credit_mask.dtype}", expected)
    columns = f"columns (fgrl.types.Rewards): tensors [{rows}] or [{rows}, {tokens}]"
    for name, tensor in value.columns.items():
        if list(tensor.shape) not in ([rows], [rows, tokens]):
            raise _wrong(reward, "score", f'the column "{name}" of the shape {list(tensor.shape)}', columns)
        if tensor.requires_grad:
            raise _wrong(reward, "score", f'the column "{name}" as part of an autograd graph', columns, "detach() it")
    if _code(reward, "score") is None:
        return value
    known, mask = ~torch.isnan(value.response).cpu(), rollout.mask.cpu()
    if bool(torch.isinf(value.response).any()):
        raise _wrong(reward, "score", "an infinite response reward", expected, "NaN stands for a missing reward")
    if not bool(torch.isfinite(value.token.cpu()[known][mask[known]]).all()):
        raise _wrong(
            reward, "score", "a token reward that is not finite, in a response whose reward is", expected,
            "a token without a reward is 0, and False in credit_mask",
        )  # fmt: skip
    for name, tensor in value.columns.items():
        of_known = tensor.cpu()[known]
        if not bool(torch.isfinite(of_known if of_known.ndim == 1 else of_known[mask[known]]).all()):
            raise _wrong(
                reward, "score", f'the column "{name}" with a number that is not finite, in a response whose reward is', columns,
                "a response that cannot be scored has the reward NaN",
            )  # fmt: skip
    return value


def checked_starts(segmenter: Component, value: Any, view: Segmentable) -> Tensor:
    """What a segmenter's `starts` returned. Raises `UserCodeError` (TypeError for a segmenter of fgrl itself)."""
    expected = f"a tensor of bool {list(view.mask.shape)}: True where a token starts a segment"
    if not isinstance(value, torch.Tensor):
        raise _wrong(segmenter, "starts", shape(value), expected)
    if value.shape != view.mask.shape or value.dtype != torch.bool:
        raise _wrong(segmenter, "starts", f"a tensor of {value.dtype} {list(value.shape)}", expected)
    return value


def checked_measured(metric: Component, value: Any) -> dict[str, Any]:
    """What a metric's `measure` returned. Raises `UserCodeError` (TypeError for a metric of fgrl itself)."""
    expected = "{metric: {model: {number: estimate}}}, as Metric.measure in fgrl/kinds.py describes it"
    if not isinstance(value, dict):
        raise _wrong(metric, "measure", shape(value), expected, "derive it from fgrl.evaluation.comparison.Comparison")
    for name, by_model in value.items():
        if not isinstance(name, str) or not isinstance(by_model, Mapping):
            raise _wrong(metric, "measure", f"{shape(by_model)} for {name!r}", expected)
        for model, numbers in by_model.items():
            if model != "about" and not isinstance(numbers, Mapping):
                raise _wrong(metric, "measure", f"{shape(numbers)} for {name!r} of {model!r}", expected)
    return value


def _wrong(component: Component, method: str, got: str, expected: str, step: str = "") -> Exception:
    """The error about what a method returned, at the method's definition."""
    kind, name = name_of(component)
    what = f"{method} of the {kind} {name!r} returned {got}"
    code = _code(component, method)
    if code is None:
        return TypeError(f"{what}; expected {expected}")
    return UserCodeError(report(Path(code.co_filename), _definition(code), what, f"expected {expected}", step))


def _code(component: Component, method: str) -> Any:
    """Of the method, where the user wrote it; None for one of fgrl itself."""
    function = next((cls.__dict__[method] for cls in type(component).__mro__ if method in cls.__dict__), None)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code if code is not None and is_user_file(code.co_filename) else None


def _definition(code: Any) -> int:
    """The line of `def`, also below decorators."""
    try:
        lines, first = inspect.getsourcelines(code)
    except OSError:
        return int(code.co_firstlineno)
    return first + next((i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)
