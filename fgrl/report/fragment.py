"""One answer as HTML for a notebook's cell: its tokens coloured by a value of each, without the page around them.

The drawing is that of the page (`answers.layer`), the style is its own: it only touches what is inside, and its colours can be read
on a light and on a dark page. Text of models goes through jinja2's autoescape and `escaping.render`, so it is text only.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from fgrl.report import answers, escaping, templates, terminal
from fgrl.report.attribution import VERDICTS, verdict
from fgrl.results.reading import mapping
from fgrl.results.text import signed
from fgrl.visible import visible

RULES = """
.fgrl-tokens { font: 14px/1.6 system-ui, sans-serif; max-width: 60rem; }
.fgrl-tokens p { margin: .3em 0; }
.fgrl-tokens .prompt { font-style: italic; opacity: .8; white-space: pre-wrap; }
.fgrl-tokens .text { white-space: pre-wrap; line-height: 2; unicode-bidi: isolate; overflow-wrap: anywhere; }
.fgrl-tokens .facts { font-size: 12px; opacity: .85; }
.fgrl-tokens .t { font-style: normal; padding: .12em 0; }
.fgrl-tokens .t.end, .fgrl-tokens .hidden, .fgrl-tokens .newline { font: .8em monospace; opacity: .7; }
.fgrl-tokens .t:hover { outline: 1.5px solid currentColor; }
.fgrl-tokens .seg { border: solid #8a857c; border-width: 0 0 1.5px 1.5px; border-radius: 0 0 0 4px; margin-right: 1px; }
.fgrl-tokens .kept { color: #1a7346; } .fgrl-tokens .broken { color: #c0392b; } .fgrl-tokens .missing { color: #8f5400; }
"""


def html(
    line: Mapping[str, Any],
    values: str = "",
    *,
    what: str = "reward",
    around_zero: bool = False,
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """An answer's line (as `answers.jsonl` has it) as HTML.

    values: which entry of its "token_rewards" colours the tokens; empty: none. what: the name of these values, for people.
    around_zero: zero is neutral in any case, because the sign has a meaning.
    """
    known = [value for value in answers.numbers(line, values) if value is not None]
    critic = answers.of_critic([line], values)
    scale = answers.scale(values, known, around_zero=around_zero or critic) if values else None
    segment_scale = answers.scale(values, answers.totals(line, values), around_zero=True) if values else None
    page = _template().render(
        css=Markup(RULES + _colours()),
        turns=escaping.turns(mapping(line.get("sample")).get("prompt")),
        segments=answers.layer(line, scale, segment_scale, what),
        left_out=max(0, len(line.get("tokens") or []) - answers.MOST_TOKENS),
        facts=facts,
        what=f"{what} of a token",
        scale=scale,
        legend=scale.legend() if scale is not None and known else [],
        criteria=_criteria(line, values),
        passages=_passages(line, values),
    )
    return visible(page)


def _criteria(line: Mapping[str, Any], values: str) -> list[dict[str, Any]]:
    criteria = mapping(line.get("criteria")).get(values) or []
    shown = []
    for criterion in map(mapping, criteria):
        kind, words = VERDICTS[verdict(criterion)]
        shown.append({"kind": kind, "words": words, "text": escaping.long(criterion.get("text"))})
    return shown


def _passages(line: Mapping[str, Any], values: str) -> list[dict[str, Any]]:
    """What a critic marked."""
    text = str(mapping(line.get("response")).get("text") or "")
    spans = mapping(mapping(line.get("annotations")).get(values)).get("spans") or []
    shown = []
    for span in map(mapping, spans):
        start, end, label = span.get("start"), span.get("end"), span.get("label")
        if isinstance(start, int) and isinstance(end, int) and isinstance(label, int | float):
            reasons = [str(reason) for reason in span.get("reasons") or []] + (
                [str(span["note"])] if span.get("note") else []
            )
            quote, why = escaping.long(text[start:end], 200), escaping.long("; ".join(reasons), 400)
            shown.append({"label": signed(label, 2), "quote": quote, "reasons": why})
    return shown


def _colours() -> str:
    """The classes of `answers.Scale`, with dark text on each colour."""
    sides = [("n", terminal.LOW), ("p", terminal.HIGH)]
    levels = {f"{side}{i}": colour for side, colours in sides for i, colour in enumerate(colours, 1)}
    levels["z"] = terminal.MIDDLE
    return "".join(
        f".fgrl-tokens .t.{level} {{ background: {colour}; color: #1d1c1a; }}\n" for level, colour in levels.items()
    )


@functools.cache
def _template() -> jinja2.Template:
    return templates.environment().get_template("fragment.html.j2")
