"""Checks of the return values of components' methods, at the place of the call. A mistake in a user's class becomes a
`UserCodeError` that points to the method. For a component of fgrl itself it becomes a TypeError, or `Stopped` for
numbers that are not finite.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class _Result:
    """The expected result of a component's method, and the errors about other results."""

    def __init__(self, component: Component, method: str, expected: str) -> None:
        self.code, self.expected = _code(component, method), expected
        kind, name = _named(component)
        self.what = f"{method} of the {kind} {name!r} returned"

    def wrong(self, got: str, step: str = "", error: type[Exception] = TypeError) -> Exception:
        """Return the error, which points to the method's definition; for a component of fgrl itself, an `error`."""
        if self.code is not None:
            problem, expected = f"{self.what} {got}", f"expected {self.expected}"
            return UserCodeError(report(self.code.co_filename, _line(self.code), problem, expected, step))
        if error is Stopped:
            cause = f"a number is too large, or comes from a model whose weights are broken ({step})"
            return Stopped(f"{self.what} {got}: {cause}")
        return error(f"{self.what} {got}; expected {self.expected}")

    def tensors(self, allowed: list[list[int]], tensors: Mapping[str, Tensor | None], mask: bool = False) -> None:
        """Raise the error for a tensor that has none of the allowed shapes, is part of an autograd graph, or is not a
        mask although it has to be one.
        """
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            if list(tensor.shape) not in allowed:
                raise self.wrong(f"{name} of the shape {list(tensor.shape)}")
            if tensor.requires_grad:
                raise self.wrong(f"{name} that is part of an autograd graph", "detach() it")
            if mask and tensor.dtype != torch.bool:
                raise self.wrong(f"{name} of {tensor.dtype}")


def checked_rewards(reward: Component, value: Any, rollout: Rollout) -> Rewards:
    """Return the result of a reward's `score`, after checks against a rollout of B responses of at most T tokens."""
    rows, tokens = rollout.mask.shape
    expected = (
        f"Rewards (fgrl.types): response [{rows}], token [{rows}, {tokens}], credit_mask [{rows}, {tokens}] of bool"
    )
    result = _Result(reward, "score", f"{expected}, columns [{rows}] or [{rows}, {tokens}]")
    if not isinstance(value, Rewards):
        step = "a function that returns a list is the reward {name: function, path: file.py:name}"
        raise result.wrong(shape(value), step)
    columns = {f'the column "{name}"': tensor for name, tensor in value.columns.items()}
    result.tensors([[rows]], {"response": value.response})
    result.tensors([[rows, tokens]], {"token": value.token})
    result.tensors([[rows, tokens]], {"credit_mask": value.credit_mask}, mask=True)
    result.tensors([[rows], [rows, tokens]], columns)
    known = ~torch.isnan(value.response).cpu()
    of_tokens = rollout.mask.cpu() & known[:, None]
    numbers = {"a response reward": value.response, "a token reward": value.token} | columns
    bounded = {name: own.cpu()[known if own.ndim == 1 else of_tokens] for name, own in numbers.items()}
    if value.criterion is not None:
        bounded["a reward of a criterion"] = value.criterion[~torch.isnan(value.criterion)]
    for name, own in bounded.items():
        if not bool((own.float().abs() <= LARGEST).all()):
            got = f"{name} that is not finite, or beyond {LARGEST:g}, in a response whose reward is known"
            step = "a response that cannot be scored has the reward NaN; a token without a reward is 0, and False in credit_mask"
            raise result.wrong(got, step, Stopped)
    return value


def nothing_scored(reward: Component, where: str, example: str) -> FgrlError:
    """Return the error that no response has a reward, for a component of the user or of fgrl itself."""
    code, missing = _code(reward, "score"), f"the reward {_named(reward)[1]} is missing for each of the {where}"
    if code is None:
        return Stopped(f"{missing}: {example}")
    problem = f"{missing}: `score` returned NaN"
    return UserCodeError(report(code.co_filename, _line(code), problem, example))


def report_failures(
    environment: Component, failures: Sequence[str], count: int, what: str, say: Callable[[str], object]
) -> None:
    """Warn that an environment failed in some of `count` conversations. Raises `UserCodeError` if it failed in all.

    what: "conversations of iteration 0".
    """
    example, name = f"for example {failures[0]}", _named(environment)[1]
    if len(failures) < count:
        say(f"warning: the environment {name} failed in {len(failures)} of {count} {what}, {example}")
        return
    problem, code = f"the environment {name} failed in each of the {count} {what}", _code(environment, "begin")
    place = None if code is None else (code.co_filename, _line(code))
    raise UserCodeError(f"fgrl: {problem}: {example}" if place is None else report(*place, problem, example))


def checked_advantages(algorithm: Component, value: Any, rollout: Rollout) -> Advantages:
    """Return the result of an algorithm's `advantages`, after checks against a rollout of B responses of at most T
    tokens. Numbers that are not finite are refused here if the algorithm is the user's own.
    """
    rows, tokens = rollout.mask.shape
    expected = f"Advantages (fgrl.types): advantage and returns [{rows}, {tokens}], keep [{rows}] and trained [{rows}, {tokens}] of bool"
    result = _Result(algorithm, "advantages", f"{expected}, columns [{rows}] or [{rows}, {tokens}]")
    if not isinstance(value, Advantages):
        raise result.wrong(shape(value))
    of_tokens = {"advantage": value.advantage, "returns": value.returns}
    result.tensors([[rows, tokens]], of_tokens)
    result.tensors([[rows]], {"keep": value.keep}, mask=True)
    result.tensors([[rows, tokens]], {"trained": value.trained}, mask=True)
    result.tensors([[rows], [rows, tokens]], {f'the column "{name}"': own for name, own in value.columns.items()})
    for name, tensor in of_tokens.items() if result.code is not None else ():
        if tensor is not None and not bool(torch.isfinite(tensor[rollout.drawn]).all()):
            step = "a division by a standard deviation of 0 is one cause; `fgrl inspect` shows the rewards"
            raise result.wrong(f"{name} that is not finite for a token", step)
    return value


def checked_credit(algorithm: Component, value: Any, batch: Batch) -> dict[str, Tensor]:
    """Return the result of an offline algorithm's `token_credit`, after checks."""
    wanted = list(batch.mask.shape)
    result = _Result(algorithm, "token_credit", f"tensors {wanted} by name: a number per token of each response")
    if not isinstance(value, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in value.values()):
        raise result.wrong(shape(value))
    result.tensors([wanted], {f'"{name}"': tensor for name, tensor in value.items()})
    return dict(value)


def checked_loss(algorithm: Component, value: Any) -> tuple[Tensor, dict[str, Number]]:
    """Return the result of an algorithm's `loss` for a micro-batch, after checks."""
    expected = "(loss, metrics): a tensor of one number on the model's autograd graph, and numbers by name"
    result = _Result(algorithm, "loss", expected)
    if not isinstance(value, tuple) or len(value) != 2:
        raise result.wrong(shape(value))
    loss, metrics = value
    if not isinstance(loss, torch.Tensor) or loss.ndim or not loss.is_floating_point():
        step = "ops.aggregate(x, batch.drawn, how, **batch.totals()) is a micro-batch's share of the mean"
        raise result.wrong(f"{shape(loss)} as the loss", step)
    if torch.is_grad_enabled() and not loss.requires_grad:
        step = "detach() and item() cut it off; so does a loss that does not use the model's log-probabilities"
        raise result.wrong("a loss that does not depend on the model's weights", step)
    for name, number in metrics.items() if isinstance(metrics, Mapping) else [("metrics", metrics)]:
        single = isinstance(number, torch.Tensor) and number.numel() == 1
        if not isinstance(name, str) or not (single or isinstance(number, Real | Mean | Most)):
            step = "x.mean() is a number of a tensor; Mean(total, count) is averaged over the whole step"
            raise result.wrong(f"{shape(number)} for the metric {name!r}", step)
    return loss, dict(metrics)


def written_at(component: Component, method: str) -> str:
    """Return the place of a method in the user's code, such as "own.py:12 (loss of the online_algorithm own)"; "" for a
    component of fgrl itself.
    """
    code = _code(component, method)
    if code is None:
        return ""
    kind, name = _named(component)
    return f"{nearby(Path(code.co_filename))}:{_line(code)} ({method} of the {kind} {name})"


def checked_state(component: Component, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a component, after a check that a checkpoint can restore it without executing code."""
    result = _Result(component, "state_dict", "tensors, numbers, texts, and lists and mappings of them")
    if not isinstance(state, Mapping | None):
        raise result.wrong(shape(state))
    for name, value in (state or {}).items():
        written = io.BytesIO()
        try:
            torch.save({name: value}, written)
            torch.load(io.BytesIO(written.getvalue()), weights_only=True, map_location="cpu")
        except Exception as error:  # of pickle, or of the value's own class
            got = f"{shape(value)} as {name!r}, which a checkpoint cannot give back ({type(error).__name__})"
            raise result.wrong(got, "convert it here, and back in `load_state_dict`") from None
    return state


@contextmanager
def own_code(component: Component, method: str) -> Iterator[None]:
    """Run a method of a component. If the user wrote it, it must not change the process, and its exceptions, also
    `SystemExit`, are reported as the user's.
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
    """Return the result of a segmenter's `starts`, after checks."""
    wanted = list(view.mask.shape)
    result = _Result(segmenter, "starts", f"a tensor of bool {wanted}: True where a token starts a segment")
    if not isinstance(value, torch.Tensor):
        raise result.wrong(shape(value))
    result.tensors([wanted], {"a tensor": value}, mask=True)
    return value


def checked_measured(metric: Component, value: Any) -> dict[str, Any]:
    """Return the result of a metric's `measure`, after checks."""
    expected = "{metric: {model: {number: estimate}}}, as Metric.measure in fgrl/kinds/metric.py describes it"
    result = _Result(metric, "measure", expected)
    if not isinstance(value, dict):
        raise result.wrong(shape(value), "derive it from fgrl.measuring.comparison.Comparison")
    for name, by_model in value.items():
        if not isinstance(name, str) or not isinstance(by_model, Mapping):
            raise result.wrong(f"{shape(by_model)} for {name!r}")
        for model, numbers in by_model.items():
            if model != "about" and not isinstance(numbers, Mapping):
                raise result.wrong(f"{shape(numbers)} for {name!r} of {model!r}")
    return value


def _named(component: Component) -> tuple[str, str]:
    """Return kind and name of a component, even if it was built in Python without a name."""
    try:
        return name_of(component)
    except NotRegistered:
        return "component", type(component).__name__


def _code(component: Component, method: str) -> Any:
    """Return the code of the method if the user wrote it; None for a method of fgrl itself."""
    function = next((cls.__dict__[method] for cls in type(component).__mro__ if method in cls.__dict__), None)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code if code is not None and is_user_file(code.co_filename) else None


def _line(code: Any) -> int:
    """Return the line of a function's `def`, also below decorators."""
    try:
        lines, first = inspect.getsourcelines(code)
    except OSError:
        lines, first = [], code.co_firstlineno
    return int(first) + next((n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)
