"""Numbers and hidden characters for people."""

from __future__ import annotations

import math

import pytest

from fgrl.base.visible import visible
from fgrl.runs.results.text import duration, number, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.15625, "0.156"), (-1.5, "−1.50"), (0, "0"), (12.0, "12"), (1234567, "1,234,567"), (3e-4, "3.00e−4"),
     (1.2e12, "1.20e12"), (None, "–"), (math.nan, "not a number"), (-math.inf, "−∞"), (99.96, "100.0")],
)  # fmt: skip
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


def test_signed() -> None:
    assert (signed(0.5), signed(-0.5), signed(0)) == ("+0.500", "−0.500", "0")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (41, "41 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (None, "–")]
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_visible_leaves_what_can_be_seen() -> None:
    plain = "a\tb\nc é 👩‍👩‍👧 ❤️ שלום ��"
    assert visible(plain) == plain
    assert visible("\x00\x1b\x7f\x85\r\u202e\ufeff\ud800") == "␀␛␡⟨U+0085⟩␍⟨U+202E⟩⟨U+FEFF⟩⟨U+D800⟩"
