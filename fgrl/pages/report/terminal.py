"""Tokens as the model sees them, for `fgrl inspect`: prompt dim, segments apart, rewards as heat; then the response
once more for each criterion, with its verdict and the relevance of the tokens.

Data is never interpreted: no markup, no emoji codes, no escape sequences. If the output is not a terminal, or has no
colours, brackets and numbers show the same information.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from fgrl.base import lazy
from fgrl.base.visible import visible
from fgrl.pages.report.marked_tokens import (
    PASSES,
    RESPONSE,
    VERDICTS,
    MarkedTokens,
    in_order,
    kind_of,
    reasons_of,
    words_of,
)
from fgrl.runs.results.text import number, signed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fgrl.measuring.answer import Attribution
rich_console = lazy.load("rich.console")
rich_table = lazy.load("rich.table")
rich_text = lazy.load("rich.text")

LOW = ("#fdeedd", "#fbdcb9", "#f8c48d", "#f3a860", "#ea8a34")
HIGH = ("#e4eefa", "#c9def5", "#a3c7ee", "#79ade6", "#5297de")
MIDDLE = "#efece6"
"""Backgrounds of rewards below, above and around 0 (the page's colours, blue and orange, are safe for colour-blind
readers).
"""
BAR = "│"
PLUS, MINUS = "⁺", "⁻"
"""Characters before tokens with rewards above and below 0."""
NARROWEST = 30
"""Minimum number of terminal columns for each of two answers side by side."""
STYLES = {
    "kept": "bold green", "broken": "bold red", "missing": "bold yellow", "good": "bold green", "poor": "bold red",
    "neutral": "dim",
}  # fmt: skip
"""Styles of verdicts and of marked passages."""
SIGNS = {"good": "+", "poor": "-", "neutral": " "}
PAD_RUN = 3
"""Maximum length of a run of padding that is printed; longer runs are counted."""


def print_tokens(items: Iterable[MarkedTokens], console: Console | None = None) -> None:
    """Print items one below the other (to stdout, unless a console is given)."""
    console = console or rich_console.Console(highlight=False)
    colours = has_colours(console)
    for item in items:
        console.print(rich_text.Text(visible(item.title), style="bold"), soft_wrap=True)
        for text in _drawings(item, colours):
            console.print(text, soft_wrap=not colours)
        for text in _marks(item):
            console.print(text, soft_wrap=True)
        if item.note:
            console.print(rich_text.Text(visible(item.note), style="dim italic"), soft_wrap=True)
        console.print()


def has_colours(console: Console) -> bool:
    """Return True if texts are printed in colours."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def plain(item: MarkedTokens) -> str:
    """Return the item as plain text. A segment is `[its tokens | sum of its rewards]`. Without segments, every token
    with a reward is `token(reward)`.
    """
    return str(_tokens(item, 0.0, False).plain)


def print_answers(
    answers: Sequence[MarkedTokens], console: Console | None = None, *, plain_lines: bool = False
) -> None:
    """Print answers to one question, side by side if the terminal is wide enough, otherwise one below the other.

    Tokens with a reward are shaded, and `+` or `-` before each group of them shows the sign without the colour; without
    colours a group is `[text | sum of its rewards]`. plain_lines: print only `NAME: ANSWER`, for other programs.
    """
    console = console or rich_console.Console(highlight=False)
    colours = not plain_lines and has_colours(console)
    reach = max(map(_reach, answers), default=0.0)
    groups = [replace(item, segments=_by_sign(item.values)) for item in answers]
    texts = [_tokens(item, reach, colours, chat=True) for item in groups]
    if plain_lines:
        for item, text in zip(answers, texts, strict=True):
            console.print(rich_text.Text(f"{visible(item.title)}: ").append_text(text), soft_wrap=True)
        return
    titles = [rich_text.Text(visible(_heading(item)), style="bold") for item in answers]
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


def _heading(item: MarkedTokens) -> str:
    return f"{item.title}   {', '.join(map(' '.join, item.facts))}" if item.facts else item.title


def _by_sign(values: Sequence[float | None] | None) -> list[int] | None:
    """Return groups of neighbouring tokens whose values have the same sign, as segments."""
    if values is None:
        return None
    signs = [None if value is None else (value > 0) - (value < 0) for value in values]
    groups = enumerate(list(places) for _sign, places in groupby(range(len(signs)), signs.__getitem__))
    return [-1 if signs[place] is None else group for group, places in groups for place in places]


def _drawings(item: MarkedTokens, colours: bool) -> Iterable[Text]:
    """Return the tokens with their values, and once more for each further number and criterion."""
    yield _tokens(item, reach := _reach(item), colours)
    if colours and reach:
        yield _legend(reach)
    for name, layer in item.layers.items():
        yield _layer(item, name, layer, colours)
    for criterion in item.criteria:
        yield _criterion(item, criterion, colours)
    if item.criteria and colours:
        yield _ramp("0", HIGH, "1  kept   ") + _ramp("0", LOW, "1  broken   relevance of a token")


def _tokens(item: MarkedTokens, reach: float, colours: bool, *, chat: bool = False) -> Text:
    """Return the tokens by kind and segment. chat: the text unchanged, with the sign before each segment."""
    result = rich_text.Text()
    for (kind, segment), places in _runs(item):
        texts = [visible(item.tokens[place]) if chat else _shown(item.tokens[place]) for place in places]
        values = [value for place in places if (value := _value(item, place)) is not None]
        if kind == "pad":
            result.append("".join(texts) if len(texts) <= PAD_RUN else f"{texts[0]}×{len(texts)}", "dim")
        elif kind in ("prompt", "environment"):
            result.append("" if colours or kind == "prompt" else "\n<<< ")
            result.append("".join(texts), "dim")
            result.append("" if colours else ">>> " if texts[-1].endswith("\n") else "\n>>> ")
        elif segment is not None and not colours:
            result.append(f"[{''.join(texts)}{f' | {signed(math.fsum(values))}' if values else ''}]")
        else:
            if segment is not None:
                result.append(_sign(math.fsum(values)) if chat else BAR, "bold" if chat else "bold bright_black")
            for place, text in zip(places, texts, strict=True):
                value = _value(item, place)
                if value is not None and (kind != "eos" or value):
                    _heated(result, text, value, reach, colours)
                else:
                    odd = "underline" if segment is not None and segment % 2 and not chat else ""
                    result.append(text, "reverse dim" if kind == "eos" else odd)
    return result


def _heated(result: Text, text: str, value: float, reach: float, colours: bool) -> None:
    """Add a text in the colour of its value, or with the value after it."""
    if colours:
        result.append(text, f"black on {_heat(value, reach or 1.0)}")
    else:
        result.append(f"{text}({signed(value)})")


def _layer(item: MarkedTokens, name: str, layer: Sequence[float | None], colours: bool) -> Text:
    """Return one number if all tokens of the response have the same; otherwise the response with the number of each
    token, or shaded.
    """
    places = item.response()
    values = [layer[place] for place in places]
    result = rich_text.Text().append(visible(name), "bold")
    if len(set(values)) <= 1:
        value = values[0] if values else None
        return result.append("  none" if value is None else f"  {signed(value)} on every token")
    known = [value for value in values if value is not None]
    result.append(
        f"  of {len(known)} of {len(values)} tokens, from {signed(min(known))} to {signed(max(known))}\n", "dim"
    )
    for place, value in zip(places, values, strict=True):
        if value is None:
            result.append(_shown(item.tokens[place]), "dim")
        else:
            _heated(result, _shown(item.tokens[place]), value, max(map(abs, known)), colours)
    return result


def _criterion(item: MarkedTokens, criterion: Attribution, colours: bool) -> Text:
    """Return the verdict, the criterion, and the response: shaded, or with `[tokens | relevance]` if the relevance is
    not 0.
    """
    kind, words = VERDICTS[criterion.kept]
    result = rich_text.Text().append(words, STYLES[kind]).append(f"  {visible(criterion.text)}\n")
    places = item.response()
    if criterion.relevance is None:
        return result.append("which tokens its verdict depends on is not known", "dim")
    for value, run in groupby(range(len(places)), criterion.relevance.__getitem__):
        text = "".join(_shown(item.tokens[places[at]]) for at in run)
        if colours and value:
            _heated(result, text, value if criterion.kept else -value, 1.0, colours)
        else:
            result.append(f"[{text} | {number(value)}]" if value else text)
    return result


def _marks(item: MarkedTokens) -> Iterable[Text]:
    """Return turns, verdicts, critiques and marked passages, one line each."""
    for number_of, turn in enumerate(item.turns, 1):
        line = rich_text.Text(f"turn {number_of}", "bold").append(f"  reward {signed(turn.reward)}", "not bold")
        line.append(visible(f"  {turn.error}") if turn.error else "", "bold yellow")
        yield line.append(f"  {_shown(turn.observation)}", "dim")
    for name, passed in item.verdicts.items():
        yield rich_text.Text(visible(f"{PASSES[passed]} {name}"), style=STYLES[VERDICTS[passed][0]])
    for _name, annotation in item.annotations:
        if annotation is None:
            yield rich_text.Text("? the critique is missing: no usable answer came back", "bold yellow")
            continue
        if annotation.critique:
            yield rich_text.Text("critique  ", "bold").append(visible(annotation.critique).strip(), "not bold")
        for span in in_order(annotation.spans):
            kind, words = kind_of(span), words_of(span)
            line = rich_text.Text().append(f"{SIGNS[kind]} {kind}", STYLES[kind]).append(words.removeprefix(kind))
            reasons = "; ".join(reasons_of(span))
            line.append(f"  {_shown(item.text[span.start : span.end])}")
            yield line.append(visible(f" - {reasons}") if reasons else "", "dim")
        if not annotation.critique and not annotation.spans:
            yield rich_text.Text("nothing is marked", "dim")


def _sign(value: float) -> str:
    return PLUS if value > 0 else MINUS if value < 0 else ""


def _heat(value: float, reach: float) -> str:
    step = round(value / reach * len(HIGH))
    side = HIGH if step > 0 else LOW
    return MIDDLE if step == 0 else side[min(len(side), abs(step)) - 1]


def _legend(reach: float) -> Text:
    return _ramp(signed(-reach, 2), (*reversed(LOW), MIDDLE, *HIGH), f"{signed(reach, 2)}  reward of a token")


def _ramp(start: str, colours: Sequence[str], end: str) -> Text:
    """Return colours in a row between two words."""
    steps = [("  ", f"on {colour}") for colour in colours]
    return rich_text.Text.assemble((f"{start} ", "dim"), *steps, (f" {end}", "dim"))


def _runs(item: MarkedTokens) -> Iterable[tuple[tuple[str, int | None], list[int]]]:
    """Yield neighbouring places of one kind and one segment (None: outside all segments)."""

    def key(place: int) -> tuple[str, int | None]:
        segment = -1 if item.segments is None else item.segments[place]
        kind = item.kinds[place]
        inside = segment >= 0 and kind in RESPONSE
        return ("response" if inside else kind), (segment if inside else None)

    return ((name, list(places)) for name, places in groupby(range(len(item.tokens)), key))


def _shown(token: str) -> str:
    """Return a token with visible line ends and hidden characters; an empty token (part of a character) is a dot."""
    return visible(token).replace("\n", "↵\n").replace("\t", "⇥\t") or "·"


def _value(item: MarkedTokens, place: int) -> float | None:
    return item.values[place] if item.values is not None and item.kinds[place] in RESPONSE else None


def _reach(item: MarkedTokens) -> float:
    """Return the largest absolute value of the response; 0 if there is none."""
    return max((abs(_value(item, place) or 0.0) for place in range(len(item.tokens))), default=0.0)
