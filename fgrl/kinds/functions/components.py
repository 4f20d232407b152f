"""Checks of what the methods of components return, made where they are called, so that a mistake in a user's class is
reported as theirs.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.base.errors import FgrlError, Stopped, UserCodeError
from fgrl.kinds.functions.reporting import as_user_error, report
from fgrl.kinds.functions.returned import LARGEST, shape
from fgrl.registry.explaining import nearby
from fgrl.registry.names import NotRegistered, name_of
from fgrl.registry.outside import is_user_file
from fgrl.registry.settings import Component
from fgrl.registry.shielding import shielded
from fgrl.types import Advantages, Batch, Mean, Most, Number, Rewards, Rollout, Segmentable

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


def checked_rewards(reward: Component, value: Any, rollout: Rollout) -> Rewards:
    """Check the result of a reward's `score` for a rollout of B responses of at most T tokens. Raises `UserCodeError`
    (for a reward of fgrl itself TypeError, and `Stopped` for numbers that are not finite).
    """
    rows, tokens = rollout.mask.shape
    expected = (
        f"Rewards (fgrl.types): response [{rows}], token [{rows}, {tokens}], credit_mask [{rows}, {tokens}] of bool"
    )
    if not isinstance(value, Rewards):
        raise _wrong(
            reward, "score", shape(value), expected,
            "a function that returns a list is the reward {name: function, path: file.py:name}",
        )  # fmt: skip
    _check_tensors(reward, "score", expected, [
        ("response", value.response, [[rows]]),
        ("token", value.token, [[rows, tokens]]),
        ("credit_mask", value.credit_mask, [[rows, tokens]]),
    ])  # fmt: skip
    if value.credit_mask.dtype != torch.bool:
        raise _wrong(reward, "score", f"credit_mask of {value.credit_mask.dtype}", expected)
    columns = f"columns (fgrl.types.Rewards): tensors [{rows}] or [{rows}, {tokens}]"
    _check_tensors(reward, "score", columns, _columns(value.columns, rows, tokens))
    known, mask = ~torch.isnan(value.response).cpu(), rollout.mask.cpu()
    if bool((value.response.abs() > LARGEST).any()):
        raise _wrong(
            reward, "score", f"a response reward beyond {LARGEST:g}", expected,
            "NaN stands for a missing reward", error=Stopped,
        )  # fmt: skip
    if not bool((value.token.cpu()[known][mask[known]].abs() <= LARGEST).all()):
        raise _wrong(
            reward, "score", f"a token reward that is not finite, or beyond {LARGEST:g}, in a response whose reward is known", expected,
            "a token without a reward is 0, and False in credit_mask", error=Stopped,
        )  # fmt: skip
    if value.criterion is not None and bool((value.criterion.abs() > LARGEST).any()):
        raise _wrong(
            reward, "score", f"a reward of a criterion beyond {LARGEST:g}", expected,
            "NaN stands for a missing one", error=Stopped,
        )  # fmt: skip
    for name, tensor in value.columns.items():
        of_known = tensor.cpu().float()[known]
        if not bool(torch.isfinite(of_known if of_known.ndim == 1 else of_known[mask[known]]).all()):
            raise _wrong(
                reward, "score", f'the column "{name}" with a number that is not finite, in a response whose reward is', columns,
                "a response that cannot be scored has the reward NaN", error=Stopped,
            )  # fmt: skip
    return value


def nothing_scored(reward: Component, where: str, example: str) -> FgrlError:
    """Return the error that no response has a reward: of the user's component, or of one of fgrl itself."""
    code, missing = _code(reward, "score"), f"the reward {_named(reward)[1]} is missing for each of the {where}"
    if code is None:
        return Stopped(f"{missing}: {example}")
    return UserCodeError(report(Path(code.co_filename), _definition(code), f"{missing}: `score` returned NaN", example))


def checked_advantages(algorithm: Component, value: Any, rollout: Rollout) -> Advantages:
    """Return what an algorithm's `advantages` returned for a rollout of B responses of at most T tokens. Raises
    `UserCodeError` (TypeError for an algorithm of fgrl itself) for other types and shapes, and where the user's own
    algorithm returns numbers that are not finite.
    """
    rows, tokens = rollout.mask.shape
    expected = f"Advantages (fgrl.types): advantage [{rows}, {tokens}], returns [{rows}, {tokens}] or None"
    method = "advantages"
    if not isinstance(value, Advantages):
        raise _wrong(algorithm, method, shape(value), expected)
    of_tokens = {"advantage": value.advantage, "returns": value.returns}
    masks = {"keep": (value.keep, [rows]), "trained": (value.trained, [rows, tokens])}
    _check_tensors(algorithm, method, expected, [
        *((name, tensor, [[rows, tokens]]) for name, tensor in of_tokens.items() if tensor is not None),
        *((name, tensor, [wanted]) for name, (tensor, wanted) in masks.items() if tensor is not None),
    ])  # fmt: skip
    for name, (tensor, wanted) in masks.items():
        if tensor is not None and tensor.dtype != torch.bool:
            raise _wrong(algorithm, method, f"{name} of {tensor.dtype}", f"{name} {wanted} of bool, or None")
    columns = f"columns (fgrl.types.Advantages): tensors [{rows}] or [{rows}, {tokens}]"
    _check_tensors(algorithm, method, columns, _columns(value.columns, rows, tokens))
    if _code(algorithm, method) is not None:
        for name, tensor in of_tokens.items():
            if tensor is not None and not bool(torch.isfinite(tensor[rollout.drawn]).all()):
                raise _wrong(
                    algorithm, method, f"{name} that is not finite for a token", expected,
                    "a division by a standard deviation of 0 is one cause; `fgrl inspect` shows the rewards",
                )  # fmt: skip
    return value


def checked_credit(algorithm: Component, value: Any, batch: Batch) -> dict[str, Tensor]:
    """Return what an offline algorithm's `token_credit` returned. Raises `UserCodeError` (TypeError for an algorithm of
    fgrl itself).
    """
    shape_of_batch = list(batch.mask.shape)
    expected = f"tensors {shape_of_batch} by name: a number per token of each response"
    if not isinstance(value, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in value.values()):
        raise _wrong(algorithm, "token_credit", shape(value), expected)
    named = [(f'"{name}"', tensor, [shape_of_batch]) for name, tensor in value.items()]
    _check_tensors(algorithm, "token_credit", expected, named)
    return dict(value)


def checked_loss(algorithm: Component, value: Any) -> tuple[Tensor, dict[str, Number]]:
    """Return what an algorithm's `loss` returned for a micro-batch. Raises `UserCodeError` (TypeError for an algorithm
    of fgrl itself).
    """
    expected = "(loss, metrics): a tensor of one number on the model's autograd graph, and numbers by name"
    if not isinstance(value, tuple) or len(value) != 2:
        raise _wrong(algorithm, "loss", shape(value), expected)
    loss, metrics = value
    if not isinstance(loss, torch.Tensor) or loss.ndim or not loss.is_floating_point():
        got = (
            f"a loss of the shape {list(loss.shape)}"
            if isinstance(loss, torch.Tensor)
            else f"{shape(loss)} as the loss"
        )
        step = "ops.aggregate(x, batch.drawn, how, **batch.totals()) is a micro-batch's share of the mean"
        raise _wrong(algorithm, "loss", got, expected, step)
    if torch.is_grad_enabled() and not loss.requires_grad:
        step = "detach() and item() cut it off; so does a loss that does not use the model's log-probabilities"
        raise _wrong(algorithm, "loss", "a loss that does not depend on the model's weights", expected, step)
    for name, number in metrics.items() if isinstance(metrics, Mapping) else [("metrics", metrics)]:
        single = isinstance(number, torch.Tensor) and number.numel() == 1
        if not isinstance(name, str) or not (single or isinstance(number, Real | Mean | Most)):
            step = "x.mean() is a number of a tensor; Mean(total, count) is averaged over the whole step"
            raise _wrong(algorithm, "loss", f"{shape(number)} for the metric {name!r}", expected, step)
    return loss, dict(metrics)


def written_at(component: Component, method: str) -> str:
    """Return the place where the user wrote a method of a component, such as "own.py:12 (loss of the online_algorithm
    own)"; "" for one of fgrl itself.
    """
    code = _code(component, method)
    if code is None:
        return ""
    kind, name = _named(component)
    return f"{nearby(Path(code.co_filename))}:{_definition(code)} ({method} of the {kind} {name})"


def _columns(columns: Mapping[str, Tensor], rows: int, tokens: int) -> list[tuple[str, Tensor, list[list[int]]]]:
    return [(f'the column "{name}"', tensor, [[rows], [rows, tokens]]) for name, tensor in columns.items()]


def _check_tensors(
    component: Component, method: str, expected: str, tensors: Iterable[tuple[str, Tensor, list[list[int]]]]
) -> None:
    """Refuse a tensor that has none of its allowed shapes, or that is part of an autograd graph."""
    for name, tensor, allowed in tensors:
        if list(tensor.shape) not in allowed:
            raise _wrong(component, method, f"{name} of the shape {list(tensor.shape)}", expected)
        if tensor.requires_grad:
            raise _wrong(component, method, f"{name} that is part of an autograd graph", expected, "detach() it")


def checked_state(component: Component, state: Any) -> Any:
    """Return the state of a component, after a check that a checkpoint can give it back. Raises `UserCodeError`
    (TypeError for a component of fgrl itself) with the place of a value that cannot be loaded without executing code.
    """
    for place, value in _leaves(state, "state_dict()"):
        if isinstance(value, torch.Tensor) or type(value) in (str, int, float, bool, type(None)):
            continue
        written = io.BytesIO()
        try:
            torch.save(value, written)
            torch.load(io.BytesIO(written.getvalue()), weights_only=True)
        except Exception as error:  # of pickle, or of the value's own class
            raise _wrong(
                component, "state_dict", f"{shape(value)} at {place}, which a checkpoint cannot give back ({type(error).__name__})",
                "tensors, numbers, texts, and lists and mappings of them", "convert it here, and back in `load_state_dict`",
            ) from None  # fmt: skip
    return state


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every value in nested mappings and lists, with the path to it."""
    if type(value) is dict:
        for key, item in value.items():
            yield f"{place}: a key", key
            yield from _leaves(item, f"{place}[{key!r}]")
    elif type(value) in (list, tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}[{number}]")
    else:
        yield place, value


@contextmanager
def own_code(component: Component, method: str) -> Iterator[None]:
    """While a method of a component runs: where the user wrote it, it must not change the process, and what it raises is
    reported as theirs, also `SystemExit`.
    """
    code = _code(component, method)
    if code is None:
        yield
        return
    try:
        with shielded(f"{nearby(Path(code.co_filename))}:{code.co_qualname}"):
            yield
    except BaseException as error:
        if isinstance(error, Exception) or (user := as_user_error(error)) is None:
            raise
        raise user from error


def checked_starts(segmenter: Component, value: Any, view: Segmentable) -> Tensor:
    """Check the result of a segmenter's `starts`. Raises `UserCodeError` (TypeError for a segmenter of fgrl itself)."""
    expected = f"a tensor of bool {list(view.mask.shape)}: True where a token starts a segment"
    if not isinstance(value, torch.Tensor):
        raise _wrong(segmenter, "starts", shape(value), expected)
    if value.shape != view.mask.shape or value.dtype != torch.bool:
        raise _wrong(segmenter, "starts", f"a tensor of {value.dtype} {list(value.shape)}", expected)
    return value


def checked_measured(metric: Component, value: Any) -> dict[str, Any]:
    """Check the result of a metric's `measure`. Raises `UserCodeError` (TypeError for a metric of fgrl itself)."""
    expected = "{metric: {model: {number: estimate}}}, as Metric.measure in fgrl/kinds/metric.py describes it"
    if not isinstance(value, dict):
        raise _wrong(metric, "measure", shape(value), expected, "derive it from fgrl.measuring.comparison.Comparison")
    for name, by_model in value.items():
        if not isinstance(name, str) or not isinstance(by_model, Mapping):
            raise _wrong(metric, "measure", f"{shape(by_model)} for {name!r}", expected)
        for model, numbers in by_model.items():
            if model != "about" and not isinstance(numbers, Mapping):
                raise _wrong(metric, "measure", f"{shape(numbers)} for {name!r} of {model!r}", expected)
    return value


def _wrong(
    component: Component, method: str, got: str, expected: str, step: str = "", error: type[Exception] = TypeError
) -> Exception:
    """Return the error about what a method returned, at the method's definition; `error` about a component of fgrl
    itself.
    """
    kind, name = _named(component)
    what = f"{method} of the {kind} {name!r} returned {got}"
    code = _code(component, method)
    if code is None and error is Stopped:
        return Stopped(f"{what}: a number is too large, or comes from a model whose weights are broken ({step})")
    if code is None:
        return error(f"{what}; expected {expected}")
    return UserCodeError(report(Path(code.co_filename), _definition(code), what, f"expected {expected}", step))


def _named(component: Component) -> tuple[str, str]:
    """Kind and name, also of a component that was built in Python without a name."""
    try:
        return name_of(component)
    except NotRegistered:
        return "component", type(component).__name__


def _code(component: Component, method: str) -> Any:
    """Return the code of the method, where the user wrote it; None for one of fgrl itself."""
    function = next((cls.__dict__[method] for cls in type(component).__mro__ if method in cls.__dict__), None)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code if code is not None and is_user_file(code.co_filename) else None


def _definition(code: Any) -> int:
    """Return the line of `def`, also below decorators."""
    try:
        lines, first = inspect.getsourcelines(code)
    except OSError:
        return int(code.co_firstlineno)
    return first + next((i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)
