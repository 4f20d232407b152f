"""Mistakes of a user: collected, with their places, and printed all at once."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.base.errors import WRONG_REQUEST, FgrlError
from fgrl.base.sanitizing import hide
from fgrl.base.visible import quantity

Key = tuple[str | int, ...]
"""Path in a recipe: ("stages", "policy", "metrics", 0, "name")."""

_WIDTH = 110
_SCREEN = 5_000
"""Number of characters of problems after which the others are only counted."""


@dataclass(frozen=True)
class Place:
    """A position in a file, or on the command line (then `line` is 0)."""

    label: str
    """Path of the file as the user would write it, or "command line"."""
    line: int = 0
    """Number of the line, from 1."""
    column: int = 0
    """Number of the column, from 1."""
    text: str = ""
    """Text of the line."""
    file: Path | None = None
    """Absolute path of the file."""
    rank: int = 0
    """Rank for sorting files: the recipe, its parents, the command line."""

    def __str__(self) -> str:
        return f"{self.label}:{self.line}:{self.column}" if self.line else self.label

    @property
    def folder(self) -> Path:
        """Folder that a path written here is relative to."""
        return self.file.parent if self.file is not None else Path.cwd()

    def in_words(self) -> str:
        """Return the place for a sentence: `at recipes/x.yaml:3:5`, `on the command line`."""
        return f"at {self}" if self.line else f"on the {self.label}"

    def excerpt(self) -> list[str]:
        """Return the line and a caret under the column."""
        if not self.text.strip():
            return []
        text = hide(self.text)
        start = max(0, self.column - 1 - _WIDTH * 2 // 3) if len(text) > _WIDTH else 0
        shown = text[start : start + _WIDTH].replace("\t", " ").rstrip()
        shown = ("…" if start else "") + shown + ("…" if len(text.rstrip()) > start + _WIDTH else "")
        before = shown[: max(self.column, 1) - 1 - start + bool(start)]
        caret = " " * sum(_columns(letter) for letter in before) + "^"
        number = f"{self.line or '':>4}"
        return [f"{number} | {shown}", f"{' ' * len(number)} | {caret}"]


@dataclass
class Problem:
    """One mistake: its place in the recipe, the error, and the next step."""

    path: Key
    message: str
    hint: str | None = None
    place: Place | None = None
    written: bool = False
    """True if the value is wrong wherever it is used: the mistake is then reported once, at the place where the value
    was written.
    """
    needs: str | None = None
    """Variable that waits for its value (`vars.sft`): it is no mistake, but nothing can run without the value."""

    def __str__(self) -> str:
        where = [_brief(str(self.place), 300)] if self.place else []
        path = [_brief(dotted(self.path), 300)] if self.path else []
        lines = [": ".join([*where, *path, _brief(self.message)])]
        if self.place:
            lines += self.place.excerpt()
        if self.hint:
            lines += [f"    = {line}" for line in _brief(self.hint, 1200).splitlines()]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "path": _brief(dotted(self.path), 300),
            "message": _brief(self.message),
            "hint": None if self.hint is None else _brief(self.hint, 1200),
            "place": None if self.place is None else _brief(str(self.place), 300),
        }


@dataclass
class Problems(FgrlError):
    """All mistakes that were found in a recipe. `str()` is what the user reads."""

    exit_code = WRONG_REQUEST

    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.problems)

    @property
    def needs(self) -> list[str]:
        """Variables to set, if nothing else has to be done; else empty."""
        needs = [problem.needs for problem in self.problems if problem.needs is not None]
        return needs if len(needs) == len(self.problems) else []

    def __str__(self) -> str:
        ordered = sorted(self.problems, key=_position)
        count = len(ordered)
        lines: list[str] = []
        for number, problem in enumerate(ordered):
            if sum(map(len, lines)) > _SCREEN:
                lines.append(f"... and {count - number} more")
                break
            lines.append(str(problem))
        return "\n".join([*lines, f"{quantity(count, 'problem')} found; nothing was run."])

    def at_terminal(self) -> str:
        """Return the problems for a terminal: each begins with its place."""
        return str(self)

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "problems": [problem.as_json() for problem in self.problems]}


def _brief(text: str, most: int = 600) -> str:
    """Return a text without secrets, and without its middle when it is longer than a person reads."""
    text = hide(text)
    return text if len(text) <= most else f"{text[: most * 2 // 3]} ... {text[-most // 3 :]}"


def _position(problem: Problem) -> tuple[int, str, int, int]:
    place = problem.place
    return (place.rank, place.label, place.line, place.column) if place else (1_000_000, "", 0, 0)


def _columns(letter: str) -> int:
    """Return the number of columns that a character takes in a terminal."""
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def dotted(path: Sequence[str | int]) -> str:
    """Return a path in one text: `stages.policy.metrics[0].name`; a key that contains a dot is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part and not set(part) & set('.[]" \t\n'):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that was probably meant."""
    return next(iter(closest(word, choices, 1)), None)


def closest(word: str, choices: Iterable[str], count: int) -> list[str]:
    """Return at most `count` choices that are similar to a word, the most similar first."""
    table = {choice.lower(): choice for choice in choices}
    cutoff = 0.6 if len(word) < 4 else 0.7  # "stf" is "sft", but "at most" is not "at least", nor "stop" "top_p"
    return [table[close] for close in difflib.get_close_matches(word.lower(), table, n=count, cutoff=cutoff)]


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return the end of a sentence: `; did you mean "entropy"?`; empty if no choice is similar."""
    guess = nearest(word, choices)
    return f'; did you mean "{guess}"?' if guess else ""


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """Return the message for an unknown name: `no stage "polcy"; did you mean "policy"?  stages: calibrate, policy`."""
    return f'no {what} "{name}"{did_you_mean(name, known)}  {what}s: {", ".join(known)}'


def alternatives(word: str | None, choices: Sequence[str], command: str | None = None, before: str = "") -> str:
    """Return the hint for a choice: `did you mean "entropy"?  choices: bandit, entropy, ngram  (fgrl list segmenter)`;
    empty if nothing helps.
    """
    guess = nearest(word, choices) if word else None
    parts = []
    if guess:
        parts.append(f'did you mean "{guess}"?')
    if choices:
        shown = list(choices[:24]) + (["..."] if len(choices) > 24 else [])
        parts.append("choices: " + ", ".join(shown))
    if command:
        parts.append(f"({command})")
    return before + "  ".join(parts) if parts else ""
