"""Units of a text that are labelled one by one: words, sentences, clauses, and the statements of a program.

All functions return places (start, end) in code points, in order and without overlaps. A unit has no white space at its
ends, and nothing but white space stands between two units, so the units cover every visible character of the text. The
units of a program in a Markdown fence cover the program alone.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from fgrl.feedback.rules import sentences as sentence_rules
from fgrl.feedback.rules.programs import extraction
from fgrl.feedback.rules.text import CHUNK, CharRange, ranges, trimmed

UnitKind = Literal["sentence", "clause", "statement"]
AnyUnit = Literal["word", "sentence", "clause", "statement"]
CLAUSE_WORDS = 3
"""Minimum number of words of a separate clause: a shorter piece between two commas is part of the clause before it."""
LONGEST_PROGRAM = 100_000
"""Maximum number of characters of a program that is parsed; a longer program is divided into lines."""

_SENTENCE_END = re.compile(r"[。！？｡]+[」』”’）]*|\n\s*\n|\n(?=[ \t]*(?:[-*•]|\d+[.)])[ \t])")
"""Ends of sentences that `sentences.prose` does not know: the marks of Chinese and Japanese, empty lines, and the next
item of a list.
"""
_CLAUSE_END = re.compile(r"[,;:](?=\s)|[，、；：]|\s[\u2013\u2014-]+(?=\s)|\u2014")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_LINE = re.compile(r"[^\n]+")
_BREAK = re.compile(r"\r\n|\r|\n")


def words(text: str) -> list[CharRange]:
    """Return the stretches between white space. A text in a script without spaces has few, long words."""
    return ranges(CHUNK, text)


def sentences(text: str) -> list[CharRange]:
    """Return the sentences. They end where `fgrl.feedback.rules.sentences.prose` finds an end, and also at empty lines,
    the next item of a list, and the sentence marks of Chinese and Japanese.
    """
    return [
        sentence
        for piece in _cut(text, (match.end() for match in _SENTENCE_END.finditer(text)))
        for sentence in _shifted(sentence_rules.prose(text[slice(*piece)]), piece[0])
    ]


def clauses(text: str) -> list[CharRange]:
    """Return the clauses: sentences divided behind commas, semicolons, colons and dashes. A piece of fewer than
    `CLAUSE_WORDS` words ("However,", an item of an enumeration) is not a separate clause: it joins the clause before
    it, or the clause after it at the beginning of a sentence.
    """
    return [clause for sentence in sentences(text) for clause in _clauses_of(text, sentence)]


@dataclass(frozen=True)
class Statements:
    """The statements of a program."""

    places: list[CharRange]
    parsed: bool
    """False if the program is not Python that can be parsed: `places` are then its lines."""


def statements(text: str) -> Statements:
    """Return the statements of the Python program in a text, which is the one that tests run
    (`fgrl.feedback.rules.programs.extraction`).

    A simple statement is a unit. A compound statement (a function, a loop, a branch) is not: its header is a unit (`def
    f(x):` with its decorators, `else:`, `except E:`, `case 1:`), and so is every statement in it. A comment on a
    separate line belongs to the statement below it. A comment at the end of a line belongs to that line's last
    statement. The program is parsed, never run.
    """
    start, end = extraction.place(text)
    code = text[start:end]
    starts = _statement_starts(code) if len(code) <= LONGEST_PROGRAM else None
    places = ranges(_LINE, code) if starts is None else _cut(code, starts)
    return Statements(_shifted(_visible(code, places), start), parsed=starts is not None)


DIVIDE: dict[AnyUnit, Callable[[str], Sequence[CharRange]]] = {
    "word": words,
    "sentence": sentences,
    "clause": clauses,
    "statement": lambda text: statements(text).places,
}


def numbered(text: str, units: Iterable[CharRange]) -> str:
    """Return the units as a prompt shows them: numbered from 1, one per line. A unit of several lines keeps its line
    breaks.
    """
    return "\n".join(f"{number}. {text[start:end]}" for number, (start, end) in enumerate(units, start=1))


# -- pieces ------------------------------------------------------------------------------------------------------------


def _cut(text: str, at: Iterable[int]) -> list[CharRange]:
    """Return the visible pieces of a text that is cut at these places, in any order."""
    places = sorted({0, len(text), *at})
    return _visible(text, pairwise(places))


def _visible(text: str, places: Iterable[CharRange]) -> list[CharRange]:
    """Return the places without white space at their ends; blank places are dropped."""
    return [place for place in (trimmed(text, bounds) for bounds in places) if place[0] < place[1]]


def _shifted(places: Iterable[CharRange], by: int) -> list[CharRange]:
    return [(start + by, end + by) for start, end in places]


def _clauses_of(text: str, sentence: CharRange) -> list[CharRange]:
    start, end = sentence
    ends = (match.end() for match in _CLAUSE_END.finditer(text, start, end))
    joined: list[CharRange] = []
    for piece in _cut(text[start:end], (place - start for place in ends)):
        short = _is_short(text[start + piece[0] : start + piece[1]])
        if joined and (short or _is_short(text[start + joined[-1][0] : start + joined[-1][1]])):
            joined[-1] = (joined[-1][0], piece[1])
        else:
            joined.append(piece)
    return _shifted(joined, start)


def _is_short(piece: str) -> bool:
    return len(_WORD.findall(piece)) < CLAUSE_WORDS


# -- programs ----------------------------------------------------------------------------------------------------------

_INVISIBLE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def _statement_starts(text: str) -> list[int] | None:
    """Return the places where the units of a program start; None if it cannot be parsed."""
    code = _BREAK.sub("\n", text)  # as the parser sees it
    shortened = [match.start() - number for number, match in enumerate(re.finditer("\r\n", text))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the program's own text, e.g. an invalid escape in it
            tree = ast.parse(code)
        starts = _Program(code).starts(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    return [start + bisect_left(shortened, start) for start in starts]


class _Program:
    """Converter of places in a program: the syntax tree counts lines and bytes, tokens count lines and characters."""

    def __init__(self, code: str) -> None:
        self.lines = code.split("\n")
        self.line_starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        self.columns: dict[int, Sequence[int]] = {}
        """Byte at which each character of a line begins, for the lines that were asked for."""
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
        solid = [token for token in tokens if token.type not in _INVISIBLE]
        self.texts = [token.string for token in solid]
        self.begins = [self._place(*token.start) for token in solid]
        self.comments = [
            self._place(*token.start)
            for token in tokens
            if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
        ]
        """Comments on a separate line."""

    def starts(self, tree: ast.Module) -> list[int]:
        """Return the places where a unit starts: a statement or a header, with the comments above it."""
        starts = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt | ast.ExceptHandler):
                starts.add(self._start(node))
            if isinstance(node, ast.match_case):
                starts.add(self._word_before("case", self._of_node(node.pattern)))
            for part, word in (("orelse", "else"), ("finalbody", "finally")):
                block = getattr(node, part, None)
                if isinstance(block, list) and block and not self._is_elif(block[0]):
                    starts.add(self._word_before(word, self._start(block[0])))
        return [self._with_comments(start) for start in sorted(starts)]

    def _place(self, line: int, column: int) -> int:
        return self.line_starts[line - 1] + column

    def _of_node(self, node: ast.stmt | ast.ExceptHandler | ast.expr | ast.pattern) -> int:
        return self._place(node.lineno, self._column(node.lineno, node.col_offset))

    def _column(self, line: int, byte: int) -> int:
        """Return the character of a line at a byte."""
        if line not in self.columns:
            text = self.lines[line - 1]
            sizes = (len(character.encode()) for character in text)
            self.columns[line] = range(len(text) + 1) if text.isascii() else list(accumulate(sizes, initial=0))
        return bisect_left(self.columns[line], byte)

    def _start(self, node: ast.stmt | ast.ExceptHandler) -> int:
        decorators = getattr(node, "decorator_list", [])
        return self._word_before("@", self._of_node(decorators[0])) if decorators else self._of_node(node)

    def _is_elif(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and self.texts[bisect_left(self.begins, self._of_node(node))] == "elif"

    def _word_before(self, word: str, place: int) -> int:
        """Return the place of the last token with this text before the place."""
        for number in range(bisect_left(self.begins, place) - 1, -1, -1):
            if self.texts[number] == word:
                return self.begins[number]
        raise ValueError(f"there is no {word!r} before {place}")

    def _with_comments(self, start: int) -> int:
        before = bisect_left(self.begins, start) - 1
        first = bisect_right(self.comments, self.begins[before] if before >= 0 else -1)
        return min(start, self.comments[first]) if first < len(self.comments) else start
