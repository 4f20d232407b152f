"""IFBench's rules on the form of a response (its group `format`)."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import ClassVar

from pydantic import Field

from fgrl.base import errors, lazy
from fgrl.feedback.rules.counted import Counted
from fgrl.feedback.rules.rule import Forbids, Requires, Rule, broken_in, in_order, kept_at, kept_in
from fgrl.feedback.rules.sentences import sentences
from fgrl.feedback.rules.text import (
    EDGES,
    PUNCTUATION,
    CharRange,
    View,
    lines,
    occurrences,
    occurrences_of_any,
    runs,
    trimmed,
    whole,
    without,
)
from fgrl.feedback.rules.word_tokens import tokens
from fgrl.registry import register
from fgrl.types import Span

emoji = lazy.load("emoji")
EMOJI = errors.Requires("emoji", "format:emoji asks the package emoji", extra="rules")

CLOSES = {")": "(", "]": "[", "}": "{"}
LETTERS = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
LABELS = ("My Answer:", "My Conclusion:", "Future Outlook:")
DIGITS_AND_MARKS = "0123456789" + PUNCTUATION.replace('"', "")


@register("format:parentheses")
class Parentheses(Requires):
    """Brackets of any kind are nested at least five deep, and closed in the right order up to the innermost pair."""

    def supporting(self, response: str) -> list[Span]:
        open_: list[int] = []
        deepest = 0
        for at, character in enumerate(response):
            if character in "([{":
                open_.append(at)
                deepest = max(deepest, len(open_))
            elif character in CLOSES:
                if not open_ or response[open_[-1]] != CLOSES[character]:
                    open_, deepest = [], 0
                    continue
                if deepest >= 5:
                    return [kept_at(open_[0], at + 1, "five brackets deep")]
                open_.pop()
        return []


@register("format:quotes")
class Quotes(Requires):
    """Double and single straight quotation marks are nested at least three deep, and closed again."""

    def supporting(self, response: str) -> list[Span]:
        open_: list[int] = []
        deepest = 0
        for at, character in enumerate(response):
            if open_ and character == response[open_[-1]]:
                start = open_.pop()
                if deepest - len(open_) >= 3:
                    return [kept_at(start, at + 1, "three quotations deep")]
            elif character in "\"'":
                open_.append(at)
                deepest = max(deepest, len(open_))
        return []


@register("format:options")
class Options(Rule):
    """The response is one of the options and nothing else.

    Options are separated by "/", else by "or", else by ",". Options with letters (a), b), c)) must match exactly; for
    others, case and surrounding punctuation are ignored.
    """

    options: str = Field(pattern=r"\S")
    """The options as text, such as "yes/no/maybe"."""

    def keeps(self, response: str) -> bool:
        separator = next((mark for mark in ("/", "or") if mark in self.options), ",")
        options = [option.strip() for option in self.options.split(separator)]
        if LETTERS.match(self.options):
            return response in options
        return response.strip(EDGES).lower() in [option.strip(EDGES).lower() for option in options]


@register("format:newline")
class Newline(Forbids):
    """Each word stands on its own line. Violations: the words that follow another word on their line."""

    def keeps(self, response: str) -> bool:
        view = without(whole(response)).stripped()
        return sum(line != "" for line in view.text.split("\n")) == len(view.words())

    def faults(self, response: str) -> list[Span]:
        extra = [word for line in lines(response) for word in without(line).words()[1:]]
        return broken_in(extra, "a second word on its line")


@register("format:emoji")
class Emoji(Requires):
    """Every sentence ends with an emoji, or the next one begins with it (`pip install 'fgrl[rules]'`).

    Violations: the sentences without an emoji.
    """

    def check_machine(self) -> None:
        EMOJI.check()

    def keeps(self, response: str) -> bool:
        return not self._wrong(response)

    def faults(self, response: str) -> list[Span]:
        return broken_in(self._wrong(response), "no emoji at its end")

    def supporting(self, response: str) -> list[Span]:
        places = runs([at for at, character in enumerate(response) if emoji.is_emoji(character)])
        return kept_in(places, "emoji")

    def _wrong(self, response: str) -> list[View]:
        """Return the sentences that have no emoji."""
        views = sentences(response)
        bare = [without(sentence).text.strip() for sentence in views]
        ends = [text[-2:] + after[:1] if text else "" for text, after in pairwise([*bare, ""])]
        EMOJI.check()
        return [view for view, end in zip(views, ends, strict=True) if not any(map(emoji.is_emoji, end))]


@register("format:line_indent")
class LineIndent(Forbids):
    """Each line is indented by more spaces than the line before; blank lines do not count (as in IFBench, every second
    one of several in a row does). Violations: the lines that are not indented further.
    """

    def keeps(self, response: str) -> bool:
        return not self._wrong(response)

    def faults(self, response: str) -> list[Span]:
        return broken_in(self._wrong(response), "not indented more than the line before")

    def _wrong(self, response: str) -> list[View]:
        """Return the lines after the first that are not indented more than the one before."""
        every, left = lines(response), []
        gone: Counter[str] = Counter()
        index = 0
        while index < len(every):  # for a blank line the first one like it goes, and the line after it is not looked at
            blank = not every[index].text.strip()
            gone[every[index].text] += blank
            index += 1 + blank
        for line in every:
            if gone[line.text]:
                gone[line.text] -= 1
            else:
                left.append(line)
        spaces = [len(line.text) - len(line.text.lstrip(" ")) for line in left]
        return [line for line, (before, after) in zip(left[1:], pairwise(spaces), strict=True) if after <= before]


@register("format:quote_unquote")
class QuoteUnquote(Forbids):
    """Every quotation is followed by words outside quotation marks: no two marks stand side by side, and none at the
    end.

    Violations: those marks.
    """

    def faults(self, response: str) -> list[Span]:
        text = response.replace("“", '"').replace("”", '"')
        spoken_of = {at for start, end in occurrences("'\"'", text) for at in range(start, end)}
        kept = [at for at, character in enumerate(text) if at not in spoken_of and not character.isspace()]
        view = View("".join(text[at] for at in kept), tuple(kept))
        pairs = [view.place(at, at + 2) for at in range(len(kept) - 1) if view.text[at : at + 2] == '""']
        beside = [(at, at + 1) for start, end in pairs for at in (start, end - 1)]
        rest = view.stripped(DIGITS_AND_MARKS)
        last = [rest.part(len(rest.text) - 1, len(rest.text))] if rest.text.endswith('"') else []
        return in_order(
            broken_in(beside, "another quotation mark beside it") + broken_in(last, "a quotation at the end")
        )


@register("format:list")
class List(Counted):
    """The separator occurs at least twice (IFBench asks for a list with it instead of bullet points)."""

    what: ClassVar[str] = "separator"
    sep: str = Field(min_length=1)
    """Separator that must occur."""

    def places(self, response: str) -> list[CharRange]:
        return occurrences(self.sep, response)

    def bounds(self) -> tuple[int, int | None]:
        return 2, None


@register("format:thesis")
class Thesis(Requires):
    """A thesis in HTML italics (<i>...</i> or <em>...</em>) is followed by more text."""

    def supporting(self, response: str) -> list[Span]:
        start = next((at for tag in ("<i>", "<em>") if (at := response.find(tag)) >= 0), None)
        if start is None:
            return []
        end = next((at for tag in ("</i>", "</em>") if (at := response.find(tag, start)) >= 0), None)
        if end is None or not response[start + 3 : end].strip() or not response[end + 4 :].strip():
            return []
        close = response.index(">", end) + 1
        return [kept_at(start, close, "thesis")]


@register("format:sub-bullets")
class SubBullets(Forbids):
    """Every bullet point (*) has a sub-bullet (-) before the next one. Violations: bullet points without a sub-bullet.

    As in IFBench, a response without any bullet point satisfies the rule: combine it with another rule.
    """

    def faults(self, response: str) -> list[Span]:
        alone = [trimmed(response, bullet) for bullet in self._bullets(response) if "-" not in response[slice(*bullet)]]
        return broken_in(alone, "bullet without a sub-bullet")

    def supporting(self, response: str) -> list[Span]:
        pairs = [(star, response.find("-", star, end)) for star, end in self._bullets(response)]
        return kept_in([(at, at + 1) for star, dash in pairs if dash >= 0 for at in (star, dash)], "bullet")

    def _bullets(self, response: str) -> list[CharRange]:
        """Return each bullet point, up to the next one."""
        stars = [at for at, character in enumerate(response) if character == "*"]
        return list(pairwise([*stars, len(response)]))


@register("format:no_bullets_bullets")
class NoBulletsBullets(Rule):
    """At least two sentences, then at least two bullet points (lines that begin with *), and nothing after.

    As in IFBench, a blank line ends the sentences. Violations: a line after them that is not a bullet point.
    """

    def keeps(self, response: str) -> bool:
        return self._read(response)[0]

    def faults(self, response: str) -> list[Span]:
        _, wrong = self._read(response)
        return broken_in([line.stripped() for line in wrong], "no bullet point")

    def supporting(self, response: str) -> list[Span]:
        bodies = [line.stripped() for line in lines(response)]
        return kept_in([body for body in bodies if body.text.startswith("*")], "bullet point")

    def _read(self, response: str) -> tuple[bool, list[View]]:
        """Return (True if the rule is satisfied, a list with the first wrong line, if there is one)."""
        prose = bullets = 0
        before_bullets = True
        for line in lines(response):
            text = line.text.strip()
            if text.startswith("*"):
                before_bullets = False
                if prose < 2:
                    return False, []
                bullets += 1
            elif not before_bullets:
                return False, [line]
            else:
                count = len(sentences(text))
                prose += count
                before_bullets = count > 0
        return bullets >= 2, []


@register("format:title_case")
class TitleCase(Forbids):
    """No word is in lower case throughout, or begins with a small letter and contains a capital one. Words are those of
    nltk's tokenizer.

    As in IFBench, single letters and words in capitals are accepted. Violations: the wrong words.
    """

    version = 2

    def faults(self, response: str) -> list[Span]:
        words = [word for word in tokens(response) if word.text[0].islower()]
        return broken_in(
            [word for word in words if word.text[1:].isupper() or word.text[1:].islower()], "not in title case"
        )


@register("format:output_template")
class OutputTemplate(Requires):
    """The response contains "My Answer:", "My Conclusion:" and "Future Outlook:", in any order."""

    def keeps(self, response: str) -> bool:
        return all(label in response for label in LABELS)

    def supporting(self, response: str) -> list[Span]:
        return kept_in(occurrences_of_any(LABELS, response), "label")


@register("format:no_whitespace")
class NoWhitespace(Forbids):
    """The response has no white space."""

    def faults(self, response: str) -> list[Span]:
        return broken_in(runs(at for at, character in enumerate(response) if character.isspace()), "white space")
