"""IFBench's rules that each belong to a single request."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from itertools import pairwise

from fgrl.feedback.rules.rule import Forbids, Requires, Rule, broken_at, broken_in, kept_in
from fgrl.feedback.rules.sentences import sentences
from fgrl.feedback.rules.text import DIGITS, EDGES, bare_words, occurrences_anycase, pieces_between, ranges, whole
from fgrl.registry import register
from fgrl.types import Span

MULTIPLES = [str(number) for number in range(14, 50, 7)]
CAPITALS = [
    "Reykjavik", "Helsinki", "Oslo", "Tallinn", "Stockholm", "Riga", "Moscow", "Copenhagen", "Vilnius", "Minsk", "Dublin",
    "Berlin", "Amsterdam", "Warsaw", "London", "Brussels", "Prague", "Luxembourg", "Paris", "Vienna", "Bratislava",
    "Budapest", "Vaduz", "Chisinau", "Bern", "Ljubljana", "Zagreb",
]  # fmt: skip
"""Capitals from north to south, as in IFBench."""
COUNTRIES = 52
QUESTION = re.compile(r"Question \d+[\.|\):;]?\s*")
CHOICE = re.compile(r"[A-Ea-e][\.|\)]\s*\w+")
COMMA = re.compile(",")
DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
SPECIAL = re.compile(r"[^\d\w\s]")


@register("custom:multiples")
class Multiples(Requires):
    """The numbers in the response are 14, 21, 28, 35, 42, 49, in this order. Violations: other numbers."""

    def keeps(self, response: str) -> bool:
        return DIGITS.findall(response) == MULTIPLES

    def faults(self, response: str) -> list[Span]:
        numbers = ranges(DIGITS, response)
        return broken_in([place for place in numbers if response[slice(*place)] not in MULTIPLES], "not asked for")

    def supporting(self, response: str) -> list[Span]:
        numbers = ranges(DIGITS, response)
        return kept_in([place for place in numbers if response[slice(*place)] in MULTIPLES], "multiple")


@register("custom:mcq_count_length")
class QuestionsWithChoices(Rule):
    """Four questions ("Question 1: ..."), each longer than the one before and with five choices (A to E), and no text
    before.
    """

    def keeps(self, response: str) -> bool:
        # "Question" nowhere leaves the last character, as a search that returns -1 does
        if response[response.find("Question") :] != response:
            return False
        questions = [part.strip() for part in QUESTION.split(response) if part.strip()]
        if len(questions) != 4:
            return False
        lengths = []
        for question in questions:
            rows = [row.strip() for row in question.split("\n")]
            choices = [index for index, row in enumerate(rows) if CHOICE.match(row)]
            if len(choices) != 5:
                return False
            lengths.append(len(" ".join(rows[: choices[0]]).strip()))
        return all(before < after for before, after in pairwise(lengths))


@register("custom:reverse_newline")
class ReverseLines(Rule):
    """From the line with "Zimbabwe" on, there are at least 52 lines in reverse alphabetical order (accents are
    ignored).
    """

    def keeps(self, response: str) -> bool:
        rows = [row for line in response.split("\n") if (row := line.strip(EDGES))]
        start = next((index for index, row in enumerate(rows) if "Zimbabwe" in row), None)
        if start is None or len(rows) - start < COUNTRIES:
            return False
        names = [_ascii(row) for row in rows[start:]]
        return names == sorted(names, reverse=True)


@register("custom:word_reverse")
class WordReverse(Rule):
    """When its words are read from the end, the response contains "bald eagle"."""

    def keeps(self, response: str) -> bool:
        return "bald eagle" in " ".join(word.text for word in reversed(bare_words(response.lower())))


@register("custom:character_reverse")
class CharacterReverse(Requires):
    """The response contains "bald eagle" with reversed characters, in any case."""

    def supporting(self, response: str) -> list[Span]:
        return kept_in(occurrences_anycase("elgae dlab", response), "bald eagle backwards")


@register("custom:sentence_alphabet")
class SentenceAlphabet(Rule):
    """The response has 26 sentences that begin with the letters of the alphabet in order.

    Violations: the first characters that differ.
    """

    def keeps(self, response: str) -> bool:
        return len(sentences(response)) == 26 and not self.faults(response)

    def faults(self, response: str) -> list[Span]:
        letters = [chr(97 + index) for index in range(26)]
        return [
            broken_at(sentence.at[0], sentence.at[0] + 1, f"not {letter}")
            for sentence, letter in zip(sentences(response), letters, strict=False)
            if sentence.text and sentence.text.lower()[0] != letter
        ]


@register("custom:european_capitals_sort")
class CapitalsSorted(Rule):
    """The response is the capitals of Europe north of 45 degrees, from north to south, separated by commas (accents are
    ignored).
    """

    def keeps(self, response: str) -> bool:
        return [name for part in _ascii(response).split(",") if (name := part.strip())] == CAPITALS


@register("custom:csv_city")
class CsvCity(Rule):
    """The response is CSV with the columns ID, Country, City, Year, Count and seven rows."""

    def keeps(self, response: str) -> bool:
        rows = _csv(response)
        return (
            len(rows) == 8
            and rows[0] == ["ID", "Country", "City", "Year", "Count"]
            and all(len(row) == 5 for row in rows)
        )


@register("custom:csv_special_character")
class CsvSpecialCharacter(Rule):
    """The response is CSV with the columns ProductID, Category, Brand, Price, Stock and fourteen rows; a quoted field
    has a special character.
    """

    def keeps(self, response: str) -> bool:
        if not _has_header(response, ["ProductID", "Category", "Brand", "Price", "Stock"], r",[ \t]*"):
            return False
        rows = _csv(response.replace('"', '"""'))
        if len(rows) != 15:
            return False
        for row in rows[1:]:  # rows after the first such field are not looked at, as in IFBench
            if len(row) != 5:
                return False
            if any(map(_has_special_character, row)):
                return True
        return False


@register("custom:csv_quotes")
class CsvQuotes(Rule):
    """The response is tab-separated with the columns StudentID, Subject, Grade, Semester, Score and three rows, every
    field in double quotation marks.
    """

    def keeps(self, response: str) -> bool:
        if not _has_header(response, ["StudentID", "Subject", "Grade", "Semester", "Score"], r"\t *"):
            return False
        rows = _csv(response.replace('"', '"""'), "\t")
        quoted = all(field.strip()[:1] == '"' == field.strip()[-1:] for row in rows for field in row)
        return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted


@register("custom:date_format_list")
class DateList(Forbids):
    """The response consists of dates from 1769 to 1821 as YYYY-MM-DD, separated by commas. Violations: parts that are
    no such date.
    """

    def keeps(self, response: str) -> bool:
        return all(_is_date(part) for part in response.strip().split(","))

    def faults(self, response: str) -> list[Span]:
        parts = [whole(response).part(*piece).stripped() for piece in pieces_between(COMMA, response)]
        return broken_in([part for part in parts if not _is_date(part.text)], "no date of 1769 to 1821 as YYYY-MM-DD")


def _has_special_character(field: str) -> bool:
    """Return True if the field begins with a quoted part that contains a special character. As in IFBench, only its
    first line counts.
    """
    line = field.split("\n", 1)[0]
    return line.startswith('"') and SPECIAL.search(line, 1, max(1, line.rfind('"'))) is not None


def _is_date(text: str) -> bool:
    date = DATE.fullmatch(text.strip())
    if not date:
        return False
    year, month, day = map(int, date.groups())
    days = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}.get(month, 31)
    return 1769 <= year <= 1821 and month <= 12 and (month == 0 or day <= days)


def _ascii(text: str) -> str:
    """Return text without accents and without other characters outside of ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def _csv(text: str, delimiter: str = ",") -> list[list[str]]:
    """Return the rows; an empty list if the text is not valid CSV."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def _has_header(text: str, columns: list[str], between: str) -> bool:
    pattern = between.join(f'(?:{name}|"{name}")' for name in columns)
    return re.fullmatch(pattern, text.split("\n")[0].strip()) is not None
