"""Tokens in the terminal: nothing of the data is interpreted, and the same is said without colours."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest
from rich.console import Console

from fgrl.report.terminal import Annotated, plain, print_annotated


def printed(item: Annotated, **options: Any) -> str:
    file = io.StringIO()
    print_annotated([item], Console(file=file, width=200, **options))
    return file.getvalue()


def item(**changes: Any) -> Annotated:
    values: dict[str, Any] = {
        "title": "4 tokens", "tokens": ["<|user|>", "Hi", "a", " b", " c", "</s>", "<pad>"],
        "kinds": ["prompt", "prompt", "response", "response", "response", "eos", "pad"],
        "segments": [-1, -1, 0, 0, 1, -1, -1], "values": [0.0, 0.0, 1.0, 0.25, -2.0, math.nan, 9.0],
    }  # fmt: skip
    return Annotated(**values | changes)


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
    many = Annotated("t", ["<pad>"] * 40 + ["a"], ["pad"] * 40 + ["response"])
    assert plain(many) == "<pad>×40a"


def test_columns_must_fit() -> None:
    with pytest.raises(ValueError, match="7 tokens, but 1 segments"):
        item(segments=[0])


def test_nothing_to_show() -> None:
    assert plain(Annotated("t", [], [])) == ""
    assert printed(Annotated("t", [], [], [], [])).startswith("t\n")
