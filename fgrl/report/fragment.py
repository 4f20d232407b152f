"""One answer as HTML for a notebook's cell: its tokens coloured by a value of each, without the page around them.

The drawing is that of the page (`answers.layer`), the style is its own: it only touches what is inside, and its colours
can be read on a light and on a dark page. Text of models goes through jinja2's autoescape and `escaping.render`, so it
is text only.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from fgrl.evaluation.answer import Answer
from fgrl.report import answers, escaping, templates, terminal
from fgrl.report.attribution import VERDICTS
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
    answer: Answer,
    values: str = "",
    *,
    what: str = "reward",
    around_zero: bool = False,
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """Return an answer as HTML.

    values: which entry of its "token_rewards" colours the tokens; empty: none. what: the name of these values, for
    people. around_zero: zero is neutral in any case, because the sign has a meaning.
    """
    known = [value for value in answers.numbers(answer, values) if value is not None]
    critic = answers.of_critic([answer], values)
    scale = answers.scale(values, known, around_zero=around_zero or critic) if values else None
    segment_scale = answers.scale(values, answers.totals(answer, values), around_zero=True) if values else None
    page = _template().render(
        css=Markup(RULES + _colours()),
        turns=escaping.turns(answer.sample.prompt),
        segments=answers.layer(answer, scale, segment_scale, what),
        left_out=max(0, answer.n_tokens - answers.MOST_TOKENS),
        facts=facts,
        what=f"{what} of a token",
        scale=scale,
        legend=scale.legend() if scale is not None and known else [],
        criteria=_criteria(answer, values),
        passages=_passages(answer, values),
    )
    return visible(page)


def _criteria(answer: Answer, values: str) -> list[dict[str, Any]]:
    shown = []
    for criterion in answer.criteria.get(values, []):
        kind, words = VERDICTS[criterion.kept]
        shown.append({"kind": kind, "words": words, "text": escaping.long(criterion.text)})
    return shown


def _passages(answer: Answer, values: str) -> list[dict[str, Any]]:
    """Return the passages that a critic marked."""
    annotation = answer.annotations.get(values)
    return [
        {
            "label": signed(span.label, 2),
            "quote": escaping.long(answer.text[span.start : span.end], 200),
            "reasons": escaping.long("; ".join([*span.reasons, *([span.note] if span.note else [])]), 400),
        }
        for span in (annotation.spans if annotation else [])
    ]


def _colours() -> str:
    """Return the classes of `answers.Scale`, with dark text on each colour."""
    sides = [("n", terminal.LOW), ("p", terminal.HIGH)]
    levels = {f"{side}{i}": colour for side, colours in sides for i, colour in enumerate(colours, 1)}
    levels["z"] = terminal.MIDDLE
    return "".join(
        f".fgrl-tokens .t.{level} {{ background: {colour}; color: #1d1c1a; }}\n" for level, colour in levels.items()
    )


@functools.cache
def _template() -> jinja2.Template:
    return templates.environment().get_template("fragment.html.j2")
