"""Texts are plain modern English: phrases that a reader stumbled over do not come back."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from doc_blocks import ROOT, pages

INSTEAD = {
    r"hangs? on(?! (?:a|the) wall)": "depends on",
    r"put again": "retried",
    r"of (?:one's|its|their|our|your) own(?! [a-z]+)(?=[.,;:)]|$)": "your own ..., a separate ...",
    r"that are there already": "existing",
    r"(?:answer|critique|response|verdict)s? that cannot be read": "unparseable, cannot be parsed",
    r"(?:nats|words|tokens|seconds|bytes|characters) an? (?:token|answer|response|sample|step|pair|process)": "per token",
    r"\bsomebody\b": "someone, a person",
    r"\btold\b": "reported, shown, known",
    r"go(?:es|ing)? on (?:from|here|as usual)\b": "continues",
    r"to go on\b": "to continue",
    r": no (?:JSON|CSV|UTF-8)\b": "not valid JSON, not UTF-8",
    r"round in a circle": "refers to itself",
    r"nobody (?:answers|is there)": "no answer from",
    r"what (?:both|it|they) spares?": "skip",
    r"\bsends what is no\b": "returns invalid",
    r"do as (?:it|they|he) do(?:es)?\b": "do the same",
    r"a way round": "a way around; reward hacking",
}
"""Pattern, and what to write instead."""
WORDS_OF_OTHERS = ("wording.py", "claims.py")
"""Sentences of data sets, and prompts, which are quoted or part of cache keys."""


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


@cache
def strings_of(path: Path) -> tuple[str, ...]:
    """All texts of a file: messages, help and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    )


def test_messages_help_and_docstrings_use_standard_terms() -> None:
    files = [path for path in sorted((ROOT / "fgrl").rglob("*.py")) if path.name not in WORDS_OF_OTHERS]
    assert len(files) > 200
    wrong = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in files
        for text in strings_of(path)
        for problem in found_in(text)
    ]
    assert wrong == []


def test_the_patterns_find_what_they_are_meant_for() -> None:
    for text in (
        "It hangs on the seed.", "A broken answer is put again.", "nats a token", "An answer that cannot be read is kept.",
        "in an environment of its own.", "files that are there already",
    ):  # fmt: skip
        assert found_in(text), text
    assert found_in("Unparseable answers are retried; the result depends on the seed (nats per token).") == []
