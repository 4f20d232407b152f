"""Sweep files in the format of W&B's sweeps, and sweeps from the overrides of a command.

`fgrl sweep` runs such a file without W&B's server. It adds two names of parameters: `recipe` (another recipe) and `row`
(another row of the recipe).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.experiments.recipe.files import OTHER_RECIPE, OTHER_ROW
from fgrl.registry import Settings
from fgrl.registry.explaining import nearby
from fgrl.registry.settings_file import Shelf, read_settings
from fgrl.registry.tree import Text, parse

special = lazy.load("scipy.special")

BOUNDED = (
    "uniform", "int_uniform", "q_uniform", "log_uniform", "q_log_uniform", "inv_log_uniform", "log_uniform_values",
    "q_log_uniform_values", "inv_log_uniform_values",
)  # fmt: skip
UNBOUNDED = ("normal", "q_normal", "log_normal", "q_log_normal", "beta", "q_beta")
EDGE = 1e-9
"""Distance that a share keeps from 0 and 1, where some distributions have no value."""
DIGITS = 6
"""Number of significant digits of drawn values."""


class Parameter(Settings):
    """The values of one parameter: `value`, `values`, or a distribution."""

    value: Any = None
    """The only value."""
    values: list[Any] | None = Field(None, min_length=1)
    """All values."""
    probabilities: list[float] | None = None
    """Probabilities of `values`; null: all are equally probable."""
    distribution: str | None = None
    """Distribution of the drawn values; null: uniform between `min` and `max`, whole numbers if both are."""
    min: int | float | None = None
    """Minimum value; for `log_uniform` its natural logarithm."""
    max: int | float | None = None
    """Maximum value; for `log_uniform` its natural logarithm."""
    q: float | None = Field(None, gt=0)
    """Step size: drawn values are multiples of it; null: 1."""
    mu: float = 0.0
    """Mean of the normal distribution; for `log_normal` the mean of the logarithm."""
    sigma: float = Field(1.0, ge=0)
    """Standard deviation of the normal distribution; for `log_normal` the standard deviation of the logarithm."""
    a: float = Field(1.0, gt=0)
    """First shape of the beta distribution."""
    b: float = Field(1.0, gt=0)
    """Second shape of the beta distribution."""

    @property
    def kind(self) -> str:
        """Name of the distribution, also if it is not given."""
        if self.distribution is not None:
            return self.distribution
        if self.values is not None:
            return "categorical" if self.probabilities is None else "categorical_w_probabilities"
        if self.min is None:
            return "constant"
        return "int_uniform" if isinstance(self.min, int) and isinstance(self.max, int) else "uniform"

    @model_validator(mode="after")
    def _complete(self) -> Parameter:
        kind, given = self.kind, self.model_fields_set
        if kind == "constant":
            if "value" not in given:
                raise ValueError("wants `value`, `values`, `min` and `max`, or a distribution")
        elif kind in ("categorical", "categorical_w_probabilities"):
            if self.values is None:
                raise ValueError(f"{kind} wants `values`")
            if self.probabilities is not None and (
                len(self.probabilities) != len(self.values)
                or min(self.probabilities) < 0
                or not math.isclose(sum(self.probabilities), 1, abs_tol=1e-6)
            ):
                raise ValueError("`probabilities` wants a share >= 0 for each of `values`, 1 together")
        elif kind in BOUNDED:
            if self.min is None or self.max is None or self.min > self.max:
                raise ValueError(f"{kind} wants `min` and `max`, the smaller one first")
            if kind.endswith("_values") and self.min <= 0:
                raise ValueError(f"{kind} wants `min` above 0")
            if kind == "int_uniform" and not (isinstance(self.min, int) and isinstance(self.max, int)):
                raise ValueError("int_uniform wants whole numbers as `min` and `max`")
        elif kind not in UNBOUNDED:
            known = ", ".join(("constant", "categorical", "categorical_w_probabilities", *BOUNDED, *UNBOUNDED))
            raise ValueError(f'unknown distribution "{kind}": there are {known}')
        return self

    @property
    def _ends(self) -> tuple[Any, Any]:
        """`min` and `max`, if the distribution has them."""
        return self.min, self.max

    @property
    def choices(self) -> list[Any] | None:
        """All values of a grid; None for a distribution, which cannot be listed."""
        if self.kind == "constant":
            return [self.value]
        if self.values is not None:
            return self.values
        if self.kind == "int_uniform":
            low, high = self._ends
            return list(range(low, high + 1))
        if self.kind == "q_uniform":
            low, high = self._ends
            step = self.q or 1.0
            first, last = math.ceil(low / step - EDGE), math.floor(high / step + EDGE)
            return [_short(place * step) for place in range(first, last + 1)]
        return None

    def at(self, share: float) -> Any:
        """Return the value below which this share of the draws is (the quantile); for categories, the category at this
        share.
        """
        if self.kind == "constant":
            return self.value
        if self.values is not None:
            shares = self.probabilities or [1 / len(self.values)] * len(self.values)
            ends = list(itertools.accumulate(shares))
            return next((value for value, end in zip(self.values, ends, strict=True) if share < end), self.values[-1])
        share = min(max(share, EDGE), 1 - EDGE)
        if self.kind == "int_uniform":
            low, high = self._ends
            return low + int(share * (high - low + 1))
        drawn = self._quantile(self.kind.removeprefix("q_"), share)
        if self.kind.startswith("q_"):
            drawn = round(drawn / (self.q or 1.0)) * (self.q or 1.0)
        return _short(drawn)

    def _quantile(self, kind: str, share: float) -> float:
        if kind == "beta":
            return float(special.betaincinv(self.a, self.b, share))
        if kind in ("normal", "log_normal"):
            drawn = self.mu + self.sigma * NormalDist().inv_cdf(share)
            return math.exp(drawn) if kind == "log_normal" else drawn
        low, high = self._ends
        if kind.endswith("_values"):
            low, high = math.log(low), math.log(high)
        if kind.startswith("inv_"):  # log(1/x) is uniform; its ends are those of x where `_values` names them
            low, high = (-low, -high) if kind.endswith("_values") else (low, high)
            return math.exp(-(low + share * (high - low)))
        drawn = low + share * (high - low)
        return math.exp(drawn) if "log_" in kind else drawn


class Objective(Settings):
    """Number by which points are compared."""

    name: str = Field(min_length=1)
    """Name of the number, as `STAGE/NUMBER`: a number that the stage reports at its end (`evaluate/kl.sum`) or logs
    (`policy/reward`, then the last value).
    """
    goal: Literal["minimize", "maximize"] = "minimize"
    """Direction in which the number is better."""
    target: float | None = None
    """Value of the number at which the sweep ends: no further points are started once a point reaches it."""
    impute: Literal["latest", "best", "worst"] = "worst"
    """Number that `bayes` assumes for a point that failed: the worst number so far, the best, or the last number that
    the point logged.
    """


class EarlyTermination(Settings):
    """Early end of points that fall behind while they train (successive halving, as in W&B's `hyperband`)."""

    type: Literal["hyperband"]
    """Name of the method."""
    min_iter: int | None = Field(None, ge=1)
    """Number of reported values after which points are compared for the first time."""
    max_iter: int | None = Field(None, ge=1)
    """Number of reported values at the end, from which the comparisons are counted backwards."""
    s: float | None = Field(None, ge=1)
    """Number of comparisons before `max_iter`."""
    eta: float = Field(3.0, gt=1)
    """Factor between comparisons: the best 1/eta of the points continue at each, and the next is after eta times as
    many values.
    """
    strict: bool = False
    """Part of W&B's format; without effect here."""

    @model_validator(mode="after")
    def _complete(self) -> EarlyTermination:
        if self.min_iter is None and (self.max_iter is None or self.s is None):
            raise ValueError("wants `min_iter`, or `max_iter` and `s`")
        return self

    @property
    def first(self) -> int:
        """Number of reported values after which points are compared for the first time."""
        if self.min_iter is not None:
            return self.min_iter
        assert self.max_iter is not None
        assert self.s is not None
        return max(1, int(self.max_iter / self.eta ** int(self.s)))


class SweepFile(Settings):
    """A sweep, in the format of W&B."""

    apiVersion: str | None = None
    """Part of W&B's format; without effect here."""
    kind: Literal["sweep"] | None = None
    """Part of W&B's format; without effect here."""
    controller: Any = None
    """Part of W&B's format; without effect here."""
    name: str | None = None
    """Name of the sweep; null: the name of the file."""
    description: str | None = None
    """Description of the sweep."""
    project: str | None = None
    """W&B's project, for `wandb sweep`."""
    entity: str | None = None
    """W&B's user or team, for `wandb sweep`."""
    program: str | None = None
    """Name of the program, always fgrl."""
    command: list[str] = Field(min_length=1)
    """Command of one point: `["${program}", run, RECIPE, "${args_no_hyphens}"]`, with options and overrides."""
    method: Literal["grid", "random", "bayes"]
    """Method of choosing points: every combination, random draws, or Bayesian search."""
    metric: Objective | None = None
    """Number by which points are compared."""
    parameters: dict[str, Parameter] = Field(min_length=1)
    """Parameters by the path of the value in the recipe: `stages.policy.algorithm.kl_coef`, `vars.x`, `seed`, `row`,
    `recipe`.
    """
    early_terminate: EarlyTermination | None = None
    """Early end of points that fall behind."""
    run_cap: int | None = Field(None, ge=1)
    """Maximum number of points."""

    def words(self) -> list[str]:
        """Return the words after `fgrl run` in the command, without the place of the parameters."""
        words = [
            re.sub(r"\$\{envvar:(\w+)\}", lambda found: os.environ.get(found[1], ""), word) for word in self.command
        ]
        if "run" not in words or not any(word.startswith("${args") for word in words):
            raise UsageError(
                'command: wants ["${program}", run, RECIPE, "${args_no_hyphens}"], with options and overrides of `fgrl run` '
                f"before the last: got {words}"
            )
        return [word for word in words[words.index("run") + 1 :] if not word.startswith("${args")]

    @property
    def varied(self) -> dict[str, Parameter]:
        """Parameters that have more than one value."""
        return {name: each for name, each in self.parameters.items() if each.choices is None or len(each.choices) > 1}

    def definition(self) -> dict[str, Any]:
        """Return the settings that decide which points exist, except their number."""
        about = {"apiVersion", "kind", "controller", "name", "description", "project", "entity", "program", "run_cap"}
        return self.model_dump(mode="json", exclude=about, exclude_unset=True)

    def to_yaml(self) -> str:
        """Return the file's text, for `wandb sweep`."""
        return str(yaml.safe_dump(self.model_dump(mode="json", exclude_unset=True), sort_keys=False, width=110))


def read_sweep(path: Path) -> SweepFile:
    """Return a sweep file. Raises `Problems` with the place of every mistake, and `UsageError`."""
    sweep = read_settings(SweepFile, str(path), Shelf(Path(__file__).parent / "sweeps", "a sweep"))
    if sweep.method == "grid":
        endless = [name for name, each in sweep.parameters.items() if each.choices is None]
        if endless:
            raise UsageError(
                f"{nearby(path)}: parameters.{endless[0]}: a grid wants `values`: {sweep.parameters[endless[0]].kind} has no "
                "end of them (method: random draws from it)"
            )
    if sweep.metric is None and (sweep.method == "bayes" or sweep.early_terminate):
        what = "method: bayes" if sweep.method == "bayes" else "early_terminate"
        raise UsageError(f"{nearby(path)}: {what} needs `metric`: {{name: STAGE/NUMBER, goal: maximize}}")
    return sweep


def override(name: str, value: Any) -> str:
    """Return the override that sets a parameter: the text after the sign is YAML."""
    text = (
        value if name in (OTHER_RECIPE, OTHER_ROW) and isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    )
    return f"{name}={text}"


# -- quick grids: `fgrl run R a=1,2 b=x,y` -------------------------------------------------------------------------------


def quick_sweep(name: str, command: Sequence[str], overrides: Sequence[str]) -> SweepFile | None:
    """Return the grid of the overrides that list several values (`a=1,2`); None if there is none.

    name: name of the sweep. command: words between `fgrl run` and the overrides. A comma inside brackets, braces or
    quotes does not separate values. Raises `UsageError` for a list that may be a text.
    """
    listed = {text.partition("=")[0]: values for text in overrides if len(values := split(text)) > 1}
    if not listed:
        return None
    names = [text.partition("=")[0] for text in overrides]
    twice = next((each for each in listed if names.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is set twice, and once to several values: give all of them together")
    fixed = [text for text in overrides if text.partition("=")[0] not in listed]
    return SweepFile(
        name=name,
        program="fgrl",
        command=["${program}", "run", *command, *fixed, "${args_no_hyphens}"],
        method="grid",
        parameters={path: Parameter(values=values) for path, values in listed.items()},
    )


def split(override: str) -> list[Any]:
    """Return the values of an override: a single value, unless there is a comma outside of brackets, braces and quotes."""
    name, _, text = override.partition("=")
    listed = f"[{text}]"
    tree, problems = parse(Text(listed, "command line"))
    items = [] if tree is None or problems or not isinstance(tree.value, list) else tree.value
    written = f"one text is written {name}='\"{text}\"', a list {name}=[{text}]"
    spaced = any(listed[item.place.column - 2] not in "[," for item in items)
    thousands = re.fullmatch(r"-?\d{1,3}(,\d{3})+", text) and ",0" in text
    if text.endswith(",") or (not items and re.search("^,|,,", text)) or (len(items) > 1 and (spaced or thousands)):
        raise UsageError(f"{override}: is this several values? They are written {name}=1,2, without spaces; {written}")
    if len(items) < 2:
        return [text]
    values = [item.plain() for item in items]
    if len({json.dumps(value) for value in values}) < len(values):
        raise UsageError(f"{override}: a value is listed twice; {written}")
    return values


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


__all__ = ["EarlyTermination", "Objective", "Parameter", "SweepFile", "override", "quick_sweep", "read_sweep", "split"]
