"""Tokens as the model sees them, for `fgrl inspect`: prompt dim, segments apart, rewards as heat; then the response
once more for each criterion, with its verdict and the relevance of the tokens.

What comes from data is never interpreted: no markup, no emoji codes, no escape sequences. Where the output is no
terminal, or has no colours, brackets and numbers show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, TypeGuard

from fgrl import lazy
from fgrl.results.text import number, reward_facts, signed
from fgrl.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fgrl.evaluation.answer import Attribution
    from fgrl.types import Annotation
rich_console = lazy.load("rich.console")
rich_table = lazy.load("rich.table")
rich_text = lazy.load("rich.text")

LOW = ("#fdeedd", "#fbdcb9", "#f8c48d", "#f3a860", "#ea8a34")
HIGH = ("#e4eefa", "#c9def5", "#a3c7ee", "#79ade6", "#5297de")
MIDDLE = "#efece6"
"""Backgrounds of rewards below, above and around 0 (the page's, blue and orange: safe for the colour-blind)."""
BAR = "│"
PLUS, MINUS = "⁺", "⁻"
"""In front of tokens with rewards above and below 0."""
NARROWEST = 30
"""Columns of a terminal for each of two answers side by side."""
VERDICTS = {True: ("✓ kept", "bold green"), False: ("✗ broken", "bold red"), None: ("? missing", "bold yellow")}
"""Text and style of a verdict."""
PAD_RUN = 3
"""Longer runs of padding are counted instead of printed."""


@dataclass
class Remarks:
    """A critic's annotation of a response."""

    missing: bool
    """It was asked, and nothing usable came back."""
    critique: str | None
    """None: there is no comment on the whole response."""
    passages: list[tuple[float, str, list[str]]]
    """(label, marked text, reasons), in order."""

    @classmethod
    def of(cls, annotation: Annotation | None, text: str) -> Remarks:
        """None: the annotation is missing."""
        if annotation is None:
            return cls(True, None, [])
        passages = [
            (span.label, text[span.start : span.end], span.reasons + ([span.note] if span.note else []))
            for span in sorted(annotation.spans, key=lambda span: (span.start, -span.end))
        ]
        return cls(False, annotation.critique, passages)


@dataclass
class Annotated:
    """A sequence of tokens with what is known about each; lists of tokens are as long as `tokens`."""

    title: str
    tokens: list[str]
    """Each decoded alone."""
    kinds: list[str]
    """"prompt", "response", "eos" or "pad"."""
    segments: list[int] | None = None
    """Index of the segment of each token, -1 for none."""
    values: list[float] | None = None
    """Reward of each token; NaN = no reward. Values of the prompt and of padding are not shown."""
    note: str = ""
    criteria: list[Attribution] = field(default_factory=list)
    """Criteria of the response; relevances are of the tokens of kind "response" and "eos"."""
    remarks: Remarks | None = None
    """None: no critic was asked."""
    layers: dict[str, list[float | None]] = field(default_factory=dict)
    """More numbers of each token, by what they are: the "advantage" that the loss weighs it with, columns. None: it has
    none.
    """

    def __post_init__(self) -> None:
        for name, layer in self.layers.items():
            if len(layer) != len(self.tokens):
                raise ValueError(f"{self.title}: {len(self.tokens)} tokens, but {len(layer)} numbers of {name}")
        for name in ("kinds", "segments", "values"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.tokens):
                raise ValueError(f"{self.title}: {len(self.tokens)} tokens, but {len(column)} {name}")
        drawn = len(self.response())
        for criterion in self.criteria:
            if criterion.relevance is not None and len(criterion.relevance) != drawn:
                raise ValueError(
                    f"{self.title}: {drawn} response tokens, but {len(criterion.relevance)} relevances of {criterion.text!r}"
                )

    def response(self) -> list[str]:
        """Return the tokens of the response, its end too."""
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in ("response", "eos")]


def print_annotated(items: Iterable[Annotated], console: Console | None = None) -> None:
    """Print items one below the other (to stdout, unless a console is given)."""
    console = console or rich_console.Console(highlight=False)
    colours = console.is_terminal and console.color_system is not None and not console.no_color
    for item in items:
        console.print(rich_text.Text(visible(item.title), style="bold"), soft_wrap=True)
        if colours:
            console.print(_coloured(item), soft_wrap=False)
            if (scale := _reach(item)) is not None:
                console.print(_legend(scale))
        else:
            console.print(rich_text.Text(plain(item)), soft_wrap=True)
        for name, layer in item.layers.items():
            console.print(_layer(item, name, layer, colours), soft_wrap=not colours)
        for criterion in item.criteria:
            console.print(_criterion(item, criterion, colours), soft_wrap=not colours)
        if item.criteria and colours:
            console.print(_relevance_legend())
        if item.remarks is not None:
            console.print(_remarks(item.remarks), soft_wrap=True)
        if item.note:
            console.print(rich_text.Text(visible(item.note), style="dim italic"), soft_wrap=True)
        console.print()


def plain(item: Annotated) -> str:
    """Return the item as plain text. A segment is `[its tokens | sum of its rewards]`; without segments every token
    that has a reward is `token(reward)`.
    """
    parts: list[str] = []
    for (kind, segment), places in _runs(item):
        texts = [_shown(item.tokens[place]) for place in places]
        values = _values(item, places)
        if kind == "pad":
            parts.append(_padding(texts))
        elif segment is not None:
            total = f" | {signed(math.fsum(values))}" if values else ""
            parts.append(f"[{''.join(texts)}{total}]")
        elif item.values is not None and kind != "prompt":
            parts += [
                f"{text}({signed(value)})" if math.isfinite(value) and (kind != "eos" or value) else text
                for text, value in zip(texts, (item.values[place] for place in places), strict=True)
            ]
        else:
            parts.append("".join(texts))
        if kind == "prompt":
            parts.append(">>> " if parts[-1].endswith("\n") else "\n>>> ")
    return "".join(parts)


@dataclass
class ShownAnswer:
    """An answer in a chat."""

    name: str
    """Name of the model."""
    pieces: list[str]
    """The text, in one piece or token by token."""
    values: Sequence[float | None] | None = None
    """Reward of each piece; None = no reward. None for all of them: no reward was asked for."""
    total: float | None = None
    """Reward of the whole response; None: missing."""


def print_answers(answers: Sequence[ShownAnswer], console: Console | None = None, *, plain_lines: bool = False) -> None:
    """Answers to one question, side by side at a terminal that is wide enough, otherwise one below the other.

    Tokens with a reward are shaded, and `+` or `-` in front of each group of them says the sign without the colour;
    without colours a group is `[text | sum of its rewards]`. plain_lines: `NAME: ANSWER` and nothing else, for other
    programs.
    """
    console = console or rich_console.Console(highlight=False)
    colours = not plain_lines and console.is_terminal and console.color_system is not None and not console.no_color
    reach = max((abs(value) for item in answers for value in item.values or [] if _is_reward(value)), default=0.0)
    texts = [_answer(item, reach, colours) for item in answers]
    if plain_lines:
        for item, text in zip(answers, texts, strict=True):
            console.print(rich_text.Text(f"{visible(item.name)}: ").append_text(text), soft_wrap=True)
        return
    titles = [rich_text.Text(_heading(item), style="bold") for item in answers]
    if len(answers) > 1 and console.width >= 2 * NARROWEST:
        table = rich_table.Table.grid(padding=(0, 2), expand=True)
        for _ in answers:
            table.add_column(ratio=1, overflow="fold")
        table.add_row(*titles)
        table.add_row(*texts)
        console.print(table)
    else:
        for title, text in zip(titles, texts, strict=True):
            console.print(*([title] if len(answers) > 1 or reach else []), text, sep="\n", soft_wrap=False)
    if colours and reach:
        console.print(_legend(reach).append(f"; {PLUS} above 0, {MINUS} below 0", "dim"))


def _heading(item: ShownAnswer) -> str:
    if item.values is None:
        return visible(item.name)
    facts = [("reward", "missing")] if item.total is None else reward_facts(item.total, item.values)
    return visible(f"{item.name}   {', '.join(map(' '.join, facts))}")


def _answer(item: ShownAnswer, reach: float, colours: bool) -> Text:
    """Return the answer; neighbouring tokens whose rewards have one sign are a group."""
    result = rich_text.Text()
    values = item.values if item.values is not None else [None] * len(item.pieces)
    for sign, places in groupby(range(len(item.pieces)), lambda place: _sign(values[place])):
        group = list(places)
        if sign is None or not reach:
            result.append(visible("".join(item.pieces[place] for place in group)))
        elif colours:
            result.append({1: PLUS, -1: MINUS, 0: ""}[sign], "bold")
            for place in group:
                result.append(visible(item.pieces[place]), f"black on {_heat(values[place] or 0.0, reach)}")
        else:
            total = math.fsum(values[place] or 0.0 for place in group)
            result.append(f"[{visible(''.join(item.pieces[place] for place in group))} | {signed(total)}]")
    return result


def _is_reward(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _sign(value: float | None) -> int | None:
    """1, -1 or 0; None without a reward."""
    return (value > 0) - (value < 0) if _is_reward(value) else None


def _coloured(item: Annotated) -> Text:
    reach = _reach(item)
    result = rich_text.Text()
    for (kind, segment), places in _runs(item):
        if kind == "pad":
            result.append(_padding([_shown(item.tokens[place]) for place in places]), "dim")
            continue
        if segment is not None:
            result.append(BAR, "bold bright_black")
        for place in places:
            result.append(_shown(item.tokens[place]), _style(item, place, kind, segment, reach))
    return result


def _style(item: Annotated, place: int, kind: str, segment: int | None, reach: float | None) -> str:
    if kind == "prompt":
        return "dim"
    value = item.values[place] if item.values is not None else math.nan
    if reach is not None and math.isfinite(value) and (kind != "eos" or value):
        return f"black on {_heat(value, reach)}"
    if kind == "eos":
        return "reverse dim"
    return "underline" if segment is not None and segment % 2 else ""


def _layer(item: Annotated, name: str, layer: Sequence[float | None], colours: bool) -> Text:
    """One number where all tokens of the response have the same; else the response with the number of each token, or
    shaded.
    """
    places = [place for place, kind in enumerate(item.kinds) if kind in ("response", "eos")]
    values = [layer[place] for place in places]
    result = rich_text.Text().append(visible(name), "bold")
    if len(set(values)) <= 1:
        value = values[0] if values else None
        return result.append("  none" if value is None else f"  {signed(value)} on every token")
    known = [value for value in values if value is not None]
    reach = max(map(abs, known), default=0.0)
    result.append(
        f"  of {len(known)} of {len(values)} tokens, from {signed(min(known))} to {signed(max(known))}\n", "dim"
    )
    for place, value in zip(places, values, strict=True):
        text = _shown(item.tokens[place])
        if value is None:
            result.append(text, "dim")
        elif colours:
            result.append(text, f"black on {_heat(value, reach or 1.0)}")
        else:
            result.append(f"{text}({signed(value)})")
    return result


def _criterion(item: Annotated, criterion: Attribution, colours: bool) -> Text:
    """Return the verdict, the criterion, and the response: shaded, or with `[tokens | relevance]` where that is not
    0.
    """
    result = rich_text.Text().append(*VERDICTS[criterion.kept]).append(f"  {visible(criterion.text)}\n")
    tokens = item.response()
    if criterion.relevance is None:
        return result.append("which tokens its verdict depends on is not known", "dim")
    for value, places in groupby(range(len(tokens)), criterion.relevance.__getitem__):
        text = "".join(_shown(tokens[place]) for place in places)
        if not value:
            result.append(text)
        elif colours:
            result.append(text, f"black on {_heat(value if criterion.kept else -value, 1.0)}")
        else:
            result.append(f"[{text} | {number(value)}]")
    return result


def _remarks(remarks: Remarks) -> Text:
    """Return the critique and the marked passages, one below the other."""
    if remarks.missing:
        return rich_text.Text("? the critique is missing: no usable answer came back", "bold yellow")
    result = rich_text.Text()
    if remarks.critique:
        result.append("critique  ", "bold").append(visible(remarks.critique).strip())
    for label, quote, reasons in remarks.passages:
        kind, style = (
            ("+ good", "bold green") if label > 0 else ("- poor", "bold red") if label < 0 else ("  neutral", "dim")
        )
        result.append("\n" if result else "").append(kind, style)
        result.append(f" ({signed(label, 2)})" if label not in (-1, 0, 1) else "")
        result.append(f"  {_shown(quote)}").append(visible(f" - {'; '.join(reasons)}") if reasons else "", "dim")
    return result if result else rich_text.Text("nothing is marked", "dim")


def _relevance_legend() -> Text:
    result = rich_text.Text()
    for side, verdict in ((HIGH, "kept"), (LOW, "broken")):
        result.append("0 ", "dim")
        for colour in side:
            result.append("  ", f"on {colour}")
        result.append(f" 1  {verdict}   ", "dim")
    return result.append("relevance of a token", "dim")


def _heat(value: float, reach: float) -> str:
    step = round(value / reach * len(HIGH))
    side = HIGH if step > 0 else LOW
    return MIDDLE if step == 0 else side[min(len(side), abs(step)) - 1]


def _legend(reach: float) -> Text:
    result = rich_text.Text()
    result.append(f"{signed(-reach, 2)} ", "dim")
    for colour in (*reversed(LOW), MIDDLE, *HIGH):
        result.append("  ", f"on {colour}")
    return result.append(f" {signed(reach, 2)}  reward of a token", "dim")


def _runs(item: Annotated) -> Iterable[tuple[tuple[str, int | None], list[int]]]:
    """Neighbouring places of one kind and one segment (None: outside of all)."""

    def key(place: int) -> tuple[str, int | None]:
        segment = -1 if item.segments is None else item.segments[place]
        kind = item.kinds[place]
        inside = segment >= 0 and kind in ("response", "eos")
        return ("response" if inside else kind), (segment if inside else None)

    return ((name, list(places)) for name, places in groupby(range(len(item.tokens)), key))


def _shown(token: str) -> str:
    """Return a token with its line ends and hidden characters visible; an empty one (part of a character) as a dot."""
    return visible(token).replace("\n", "↵\n").replace("\t", "⇥\t") or "·"


def _padding(texts: Sequence[str]) -> str:
    return "".join(texts) if len(texts) <= PAD_RUN else f"{texts[0]}×{len(texts)}"


def _values(item: Annotated, places: Sequence[int]) -> list[float]:
    values = item.values or []
    return [values[place] for place in places if values and math.isfinite(values[place])]


def _reach(item: Annotated) -> float | None:
    """Return the largest reward of the response, in size; None when there is none."""
    places = [place for place, kind in enumerate(item.kinds) if kind in ("response", "eos")]
    values = _values(item, places)
    largest = max(map(abs, values), default=0.0)
    return largest or None
