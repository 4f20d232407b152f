"""One answer as HTML for a notebook's cell: its tokens coloured by a value of each, without a page around them.

The drawing is that of the page (`drawing`), the style is separate: it only applies to its own elements, and its colours
can be read on a light and on a dark page. Text of models is escaped by jinja2's autoescape and `escaping.render`, so it
is only text.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jinja2
from markupsafe import Markup

from fgrl.base.visible import visible
from fgrl.measuring.answer import Answer
from fgrl.pages.report import drawing, escaping, templates, terminal
from fgrl.pages.report.marked_tokens import VERDICTS, MarkedTokens

RULES = """
.fgrl-tokens { font: 14px/1.6 system-ui, sans-serif; max-width: 60rem; }
.fgrl-tokens p { margin: .3em 0; }
.fgrl-tokens .prompt { font-style: italic; opacity: .8; white-space: pre-wrap; }
.fgrl-tokens .text { white-space: pre-wrap; line-height: 2; unicode-bidi: isolate; overflow-wrap: anywhere; }
.fgrl-tokens .who { display: block; font-size: 12px; opacity: .85; }
.fgrl-tokens .observed { display: block; padding-left: 1em; border-left: 2px solid #8a857c; line-height: 1.5; }
.fgrl-tokens .facts { font-size: 12px; opacity: .85; }
.fgrl-tokens .t { font-style: normal; padding: .12em 0; }
.fgrl-tokens .t.end, .fgrl-tokens .hidden, .fgrl-tokens .newline { font: .8em monospace; opacity: .7; }
.fgrl-tokens .t:hover { outline: 1.5px solid currentColor; }
.fgrl-tokens .seg { border: solid #8a857c; border-width: 0 0 1.5px 1.5px; border-radius: 0 0 0 4px; margin-right: 1px; }
.fgrl-tokens .seg sub { display: none; }
.fgrl-tokens .mark { text-decoration: underline 2px #5297de; text-underline-offset: .2em; }
.fgrl-tokens .mark.poor { text-decoration: underline wavy 1.5px #c0392b; }
.fgrl-tokens .mark.neutral { text-decoration-style: dotted; }
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

    values: entry of its "token_rewards" that colours the tokens; empty: none. what: name of these values for readers.
    around_zero: zero is always neutral, because the sign has a meaning.
    """
    item = MarkedTokens.of(answer, values, what=what)
    item.annotations = [marked for marked in item.annotations if marked[0] == values]
    signed = around_zero or values in answer.annotations
    scale, segments = drawing.scales_of(values, [item], signed) if values else (None, None)
    shown = drawing.Drawing.of([item], [(scale, segments)])
    page = _template().render(
        css=Markup(RULES + _colours()),
        turns=escaping.turns(answer.sample.prompt),
        drawing=shown,
        facts=facts,
        what=f"{what} of a token",
        scale=scale,
        legend=scale.legend() if scale is not None and item.values else [],
        criteria=[(*VERDICTS[each.kept], escaping.long(each.text)) for each in answer.criteria.get(values, [])],
    )
    return visible(page)


def _colours() -> str:
    """Return the classes of `drawing.Scale`, with dark text on each colour."""
    sides = [("n", terminal.LOW), ("p", terminal.HIGH)]
    levels = {f"{side}{i}": colour for side, colours in sides for i, colour in enumerate(colours, 1)}
    levels["z"] = terminal.MIDDLE
    return "".join(
        f".fgrl-tokens .t.{level} {{ background: {colour}; color: #1d1c1a; }}\n" for level, colour in levels.items()
    )


@functools.cache
def _template() -> jinja2.Template:
    return templates.environment().get_template("fragment.html.j2")
