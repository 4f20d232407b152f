"""Tokens in the terminal: nothing of the data is interpreted, and the same is said without colours."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from fgrl.measuring.answer import Attribution
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.pages.report.terminal import plain, print_tokens
from fgrl.types import Annotation, Span


def printed(item: MarkedTokens, **options: Any) -> str:
    file = io.StringIO()
    print_tokens([item], Console(file=file, width=200, **options))
    return file.getvalue()


def item(**changes: Any) -> MarkedTokens:
    values: dict[str, Any] = {
        "title": "4 tokens", "tokens": ["<|user|>", "Hi", "a", " b", " c", "</s>", "<pad>"],
        "kinds": ["prompt", "prompt", "response", "response", "response", "eos", "pad"],
        "segments": [-1, -1, 0, 0, 1, -1, -1], "values": [None, None, 1.0, 0.25, -2.0, None, 9.0],
    }  # fmt: skip
    return MarkedTokens(**values | changes)


def test_plain() -> None:
    assert plain(item()) == "<|user|>Hi\n>>> [a b | +1.25][ c | −2]</s><pad>"
    assert plain(item(values=None)) == "<|user|>Hi\n>>> [a b][ c]</s><pad>"
    assert plain(item(segments=None)) == "<|user|>Hi\n>>> a(+1) b(+0.250) c(−2)</s><pad>"


def test_no_terminal_means_plain() -> None:
    text = printed(item(note="a note"))
    assert "\x1b" not in text
    assert "[a b | +1.25]" in text
    assert "a note" in text


def test_colours() -> None:
    text = printed(item(), force_terminal=True, color_system="truecolor", legacy_windows=False)
    bare = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert "<|user|>Hi│a b│ c</s><pad>" in bare
    assert "\x1b[2mHi" in text or "\x1b[2m<|user|>" in text  # the prompt is dim
    backgrounds = [match[1] for match in re.finditer(r"48;2;(\d+;\d+;\d+)m( c| b|a)", text)]
    assert len(set(backgrounds)) == 3
    assert "9" not in bare.partition("<pad>")[2].partition("\n")[0]  # the reward of padding is not shown


@pytest.mark.parametrize("terminal", [False, True])
def test_data_is_not_interpreted(terminal: bool) -> None:
    nasty = ["[bold red]x[/]", ":smile:", "\x1b[31mred", "\x00\x9b2J", "\u202eabc", "[link=http://x]y[/link]", "\\[z]"]
    shown = item(
        title=nasty[0] + nasty[2], note=nasty[2] + nasty[1], tokens=nasty, kinds=["prompt"] + ["response"] * 6,
        segments=None, values=None,
    )  # fmt: skip
    text = printed(shown, force_terminal=terminal, color_system="truecolor" if terminal else None)
    bare = re.sub(r"\x1b\[[\d;]*m", "", text) if terminal else text
    for wanted in (
        "[bold red]x[/]",
        ":smile:",
        "␛[31mred",
        "␀⟨U+009B⟩2J",
        "⟨U+202E⟩abc",
        "[link=http://x]y[/link]",
        "\\[z]",
    ):
        assert wanted in bare, wanted
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", bare)
    assert "\x1b[31m" not in text


def test_line_ends_and_empty_tokens_are_visible() -> None:
    text = plain(item(tokens=["p", "q", "a\n", "", "\tc", "</s>", "<pad>"]))
    assert "a↵\n·" in text
    assert "⇥" in text


def test_long_padding_is_counted() -> None:
    many = MarkedTokens("t", ["<pad>"] * 40 + ["a"], ["pad"] * 40 + ["response"])
    assert plain(many) == "<pad>×40a"


def test_columns_must_fit() -> None:
    with pytest.raises(ValueError, match="7 tokens, but 1 segments"):
        item(segments=[0])


def test_nothing_to_show() -> None:
    assert plain(MarkedTokens("t", [], [])) == ""
    assert printed(MarkedTokens("t", [], [], [], [])).startswith("t\n")


CRITERIA = [
    Attribution("no c", False, [0.0, 0.0, 0.75, 0.0]),
    Attribution("some [b]", True, [1.0, 1.0, 0.25, 0.0]),
    Attribution("kind", None),
    Attribution("short", True),
]


def test_criteria() -> None:
    text = printed(item(criteria=CRITERIA))
    assert "✗ broken  no c\na b[ c | 0.750]</s>\n" in text
    assert "✓ kept  some [b]\n[a b | 1][ c | 0.250]</s>\n" in text
    assert "? missing  kind\nwhich tokens its verdict depends on is not known\n" in text
    assert "✓ kept  short\nwhich tokens its verdict depends on is not known\n" in text


def test_coloured_criteria() -> None:
    """Broken is orange and kept is blue, in the page's steps; the verdict is a word too."""
    text = printed(item(values=None, criteria=CRITERIA), force_terminal=True, color_system="truecolor")
    assert re.search(r"✗ broken.*\n.*a b\x1b\[30;48;2;243;168;96m c\x1b", text)  # 0.75 of five steps is the fourth
    assert re.search(r"✓ kept.*\n\x1b\[30;48;2;82;151;222ma b\x1b\[0m\x1b\[30;48;2;228;238;250m c\x1b", text)
    assert "relevance of a token" in text


def test_data_of_criteria_is_not_interpreted() -> None:
    text = printed(item(criteria=[Attribution("[red]x[/] \x1b[31m :smile:", True, [0.0] * 4)]))
    assert "[red]x[/] ␛[31m :smile:" in text


def test_relevances_must_fit() -> None:
    with pytest.raises(ValueError, match="4 response tokens, but 3 relevances of 'no c'"):
        item(criteria=[Attribution("no c", True, [0.0] * 3)])


def test_critiques_with_their_passages() -> None:
    text = "a b c\nx"
    spans = [Span(start=3, end=6, label=-0.5), Span(start=0, end=3, reasons=["names it"]),
             Span(start=6, end=7, label=0.0, reasons=["[red]y[/]"], note="z\x1b[31m")]  # fmt: skip
    shown = printed(item(text=text, annotations=[("r", Annotation(critique="Fine \u202e so far.", spans=spans))]))
    assert (
        "critique  Fine ⟨U+202E⟩ so far.\n+ good  a b - names it\n- poor (−0.50)   c↵\n\n  neutral  x - [red]y[/]; z␛[31m\n"
        in shown
    )
    poor = Annotation(spans=[Span(start=4, end=5, label=-1.0)])
    assert "- poor  c" in printed(item(text=text, annotations=[("r", poor)]))


def test_a_missing_critique_is_not_an_empty_one() -> None:
    assert "? the critique is missing" in printed(item(annotations=[("r", None)]))
    assert "nothing is marked" in printed(item(annotations=[("r", Annotation())]))
    assert "critic" not in printed(item())


def test_verdicts_on_the_whole_response_are_words() -> None:
    text = printed(item(verdicts={"rule": True, "[b]": False, "judge": None}))
    assert "✓ passes rule\n✗ fails [b]\n? undecided: judge\n" in text
