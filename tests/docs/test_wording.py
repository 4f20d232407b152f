"""Texts are plain modern English: phrases that a reader stumbled over do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_blocks import ROOT, pages

INSTEAD = {
    r"hangs? on(?! (?:a|the) wall)": "depends on",
    r"put again": "retried",
    r"of (?:one's|its|their|our|your) own(?! [a-z]+)(?=[.,;:)]|$)": "your own ..., a separate ...",
    r"that are there already": "existing",
    r"cannot be read": "unparseable, cannot be parsed",
    r"(?:nats|words|tokens|seconds|bytes|characters) an? (?:token|answer|response|sample|step|pair|process)": "per token",
    r"\bsomebody\b": "someone, a person",
    r"\btold\b": "reported, shown, known",
    r"goes? on from": "continues from",
    r"what (?:both|it|they) spares?": "skip",
    r"\bsends what is no\b": "returns invalid",
    r"do as (?:it|they|he) do(?:es)?\b": "do the same",
    r"a way round": "a way around; reward hacking",
}
"""Pattern, and what to write instead."""


def found_in(text: str) -> list[str]:
    words = " ".join(text.split())
    return [
        f"{words[max(0, match.start() - 40) : match.end() + 20]!r}: write {instead}"
        for pattern, instead in INSTEAD.items()
        for match in re.finditer(pattern, words, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_uses_standard_terms(page: Path) -> None:
    assert found_in(re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)) == []


def test_the_patterns_find_what_they_are_meant_for() -> None:
    for text in (
        "It hangs on the seed.", "A broken answer is put again.", "nats a token", "An answer that cannot be read is kept.",
        "in an environment of its own.", "files that are there already",
    ):  # fmt: skip
        assert found_in(text), text
    assert found_in("Unparseable answers are retried; the result depends on the seed (nats per token).") == []
