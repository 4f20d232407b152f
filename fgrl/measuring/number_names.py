"""The name of a measured number, and the spellings that are accepted.

`rule.punctuation:no_comma` is the number `punctuation:no_comma` of the metric `rule` in `metrics.json`. Every command
and the report print this name. Input may also be in upper case, have spaces instead of underscores, `rule:
punctuation:no comma`, or only the last part (`no_comma`), and a stage may precede it (`evaluate/rule.kept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fgrl.base import lazy
from fgrl.base.errors import UsageError

problems = lazy.load("fgrl.registry.problems")

METRICS = "metrics.json"
"""File in the product of a stage that measures."""
NOT_MODELS = ("differences", "about")
"""Entries of a metric that are not models."""
MOST_SUGGESTED, MOST_LISTED = 3, 8
"""Maximum numbers of suggested names, and of listed names, in a message about an unknown name."""


@dataclass(frozen=True)
class NumberName:
    """Number of a metric. `str()` returns the printed name."""

    metric: str
    number: str
    """Its key in `metrics.json`; empty if the metric has one number without a key."""

    def __str__(self) -> str:
        """Return `METRIC.NUMBER`, or only the metric if the number has no other name."""
        return self.metric if self.number in ("", "mean", self.metric) else f"{self.metric}.{self.number}"

    @property
    def keys(self) -> str:
        """Return `METRIC.NUMBER` with the keys of `metrics.json`, as in `exact_match.exact_match`."""
        return f"{self.metric}.{self.number}" if self.number else self.metric

    def contains_any(self, texts: Sequence[str]) -> bool:
        """Return True if the name, in any spelling, contains one of the texts, or if there are no texts."""
        return not texts or any(plain(text) in plain(name) for text in texts for name in (str(self), self.keys))

    def matches(self, text: str) -> int | None:
        """Return the distance of a selector from this number, 0 for the whole name; None if it names another number."""
        wanted, number = plain(text), plain(self.number)
        levels = (
            wanted in (plain(str(self)), plain(self.keys)),
            wanted == number,
            wanted == plain(self.metric),
            number.endswith(f":{wanted}"),
        )
        return next((level for level, fits in enumerate(levels) if fits), None)


def of_model(name: NumberName | str, model: str, models: Sequence[str], baseline: str | None) -> str:
    """Return the name of one model's number, for sweeps and trackers: `METRIC.NUMBER` for the only model other than the
    baseline, else `MODEL/METRIC.NUMBER`. models: all models of the evaluation.
    """
    others = [each for each in models if each != baseline] or list(models)
    return str(name) if others == [model] else f"{model}/{name}"


@dataclass(frozen=True)
class StageNumber:
    """Number of an evaluation."""

    stage: str
    name: NumberName

    def __str__(self) -> str:
        return f"{self.stage}/{self.name}"


def plain(text: str) -> str:
    """Return a name in the spelling that is used for comparison: lower case, underscores, `METRIC.NUMBER`."""
    return text.strip().lower().replace(": ", ".").replace(" ", "_")


def pick(known: Sequence[StageNumber], selector: str, prefer: str | None = None) -> StageNumber:
    """Return the number that `[STAGE/]METRIC[.NUMBER]`, or an unambiguous part of it, refers to.

    prefer: stage to use if several have the number.

    Raises `UsageError` if there is none, or if several match equally well.
    """
    stage, _, text = selector.rpartition("/")
    closeness = {number: number.name.matches(text) for number in known if not stage or number.stage == stage}
    levels = [level for level in closeness.values() if level is not None]
    if not levels:
        raise _unknown(f'no evaluation has a number "{selector}"', text, [number.name for number in known])
    best = [number for number, level in closeness.items() if level == min(levels)]
    best = [number for number in best if number.stage == prefer] or best
    if len(best) > 1:
        choices = ", ".join(f'"{number}"' for number in best)
        raise UsageError(f'"{selector}" may mean {choices}: name one of them')
    return best[0]


def check_known(known: Sequence[NumberName], texts: Sequence[str]) -> None:
    """Raise `UsageError` for a text that no number's name contains."""
    for text in texts:
        if known and not any(name.contains_any([text]) for name in known):
            raise _unknown(f"no number has {text!r} in its name", text, known)


def _unknown(mistake: str, text: str, known: Sequence[NumberName]) -> UsageError:
    """Return an error that suggests the names similar to `text`, and lists all names if they are few: an evaluation may
    have dozens.
    """
    names = list(dict.fromkeys(map(str, known)))
    close = " or ".join(f'"{name}"' for name in problems.closest(plain(text), names, MOST_SUGGESTED))
    suggestion = f"; did you mean {close}?" if close else ""
    rest = f"there are: {', '.join(names)}" if len(names) <= MOST_LISTED else "fgrl table SOURCE lists all numbers"
    return UsageError(f"{mistake}{suggestion}  ({rest})")
