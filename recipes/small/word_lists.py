"""Lists of words, each of which is to be answered with a word: prompts, marks, critiques in words, and what an answer is worth.

An answer has a line such as `heron: animal` for each word of the prompt. A line is right if it answers a word of the list, for the first
time, with one of its right answers. Every other line is wrong: it says something else of a word, or it does not belong.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from fgrl.components.rewards.critic import CriticReward
from fgrl.feedback.critiques import Critique
from fgrl.feedback.llm.asking import Asked
from fgrl.feedback.quotes import locate
from fgrl.feedback.response_annotator import ResponseAnnotator, annotated, with_responses
from fgrl.kinds import Reader
from fgrl.registry import File, register
from fgrl.types import Annotation, Response, Sample, Span

LINE = re.compile(r"[^\s](?:.*[^\s])?")
"""A line without the white space around it."""
ANSWER = re.compile(r"(\S+):[ \t]*(\S.*)")
MEANT = "meant"
"""In a sample's `meta`: the right answers of each word of its list."""


class Judged(NamedTuple):
    """A line of an answer."""

    start: int
    end: int
    word: str | None
    """The word of the list that it answers; None: it does not belong."""
    said: str
    is_right: bool


def judged(meant: Mapping[str, Sequence[str]], text: str) -> list[Judged]:
    """Return the lines of an answer, in order, without those that stand in a line before them, where a quote would find them."""
    lines: list[Judged] = []
    open_words = set(meant)
    for line in LINE.finditer(text):
        answer = ANSWER.fullmatch(line[0])
        word, said = (answer[1].lower(), answer[2].lower()) if answer else (None, line[0])
        belongs = word in open_words
        open_words.discard(word or "")
        if locate(line[0], text)[0].start == line.start():
            is_right = belongs and said in meant[str(word)]
            lines.append(Judged(line.start(), line.end(), word if belongs else None, said, is_right))
    return lines


# -- prompts -------------------------------------------------------------------------------------------------------------


@register("word_lists")
class WordLists(Reader):
    """Prompts with words of a file, and the right answer to each prompt."""

    path: Annotated[str, File]
    """Lines `{"word": "heron", "right": ["animal"]}`."""
    ask: str
    """The prompt, with the placeholder {words}."""
    skip: int = Field(0, ge=0)
    """Words of the file that are left out."""
    words: int = Field(ge=1)
    """Words to draw from."""
    length: int = Field(8, ge=1)
    """Words of a list, all different."""
    after: int = Field(0, ge=0)
    """Lists with the same words that come before these."""
    count: int = Field(ge=1)
    """Lists."""

    def read(self) -> Iterator[Sample]:
        lines = Path(self.path).read_text(encoding="utf-8").splitlines()
        right = {row["word"]: row["right"] for row in map(json.loads, lines[self.skip : self.skip + self.words])}
        for number in range(self.after, self.after + self.count):
            drawn = random.Random(f"{self.skip} {number}").sample(list(right), self.length)
            yield Sample(
                id=f"{self.skip}-{number}",
                prompt=self.ask.replace("{words}", ", ".join(drawn)),
                reference="\n".join(f"{word}: {right[word][0]}" for word in drawn),
                meta={MEANT: {word: right[word] for word in drawn}},
            )


# -- ideal marks and what is measured ------------------------------------------------------------------------------------


def outcome(
    completions: list[str], meant: list[dict[str, list[str]]], **kwargs: Any
) -> list[list[tuple[int, int, float]]]:
    """Return +1 for each right line and -1 for each wrong one: marks that are never wrong, and in sum what an answer is worth."""
    return [
        [(line.start, line.end, 1.0 if line.is_right else -1.0) for line in judged(own, text)]
        for text, own in zip(completions, meant, strict=True)
    ]


def quality(completions: list[str], meant: list[dict[str, list[str]]], **kwargs: Any) -> dict[str, list[float]]:
    """Return the share of a list's words that are answered right, and the share of the lines that are wrong."""
    lines = [judged(own, text) for text, own in zip(completions, meant, strict=True)]
    return {
        "right": [sum(line.is_right for line in own) / len(words) for own, words in zip(lines, meant, strict=True)],
        "wrong": [sum(not line.is_right for line in own) / max(len(own), 1) for own in lines],
    }


# -- critiques -----------------------------------------------------------------------------------------------------------


@register("word_critic")
class WordCritic(ResponseAnnotator):
    """Goes through the lines in order: says of each that it is right, what would be right, or that it does not belong. Marks right
    lines as good and wrong ones as poor.
    """

    says: str = "{word} is not {said} but {right}."
    """What it says of a line that answers a word wrong."""

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the annotated samples. Counts: lines that are `right` and `wrong`, and what has nothing to annotate."""
        cases, skipped = self.response_cases(samples)
        changed: dict[tuple[int, int], Response] = {}
        right = wrong = 0
        for case in cases:
            annotation = self.annotation(case.sample.meta[MEANT], case.response.text)
            changed[case.owner, case.place] = annotated(case.response, annotation)
            right += sum(span.label > 0 for span in annotation.spans)
            wrong += sum(span.label < 0 for span in annotation.spans)
        self._counted = {"right": right, "wrong": wrong, **skipped}
        return with_responses(samples, changed)

    def annotation(self, meant: Mapping[str, Sequence[str]], text: str) -> Annotation:
        """Return what it says of an answer, and its marks."""
        lines = judged(meant, text)
        return Annotation(
            by=self.annotator_name,
            critique=" ".join(self.of_line(meant, text, line) for line in lines),
            spans=[Span(start=line.start, end=line.end, label=1.0 if line.is_right else -1.0) for line in lines],
        )

    def of_line(self, meant: Mapping[str, Sequence[str]], text: str, line: Judged) -> str:
        """Return what it says of a line."""
        if line.is_right:
            return f"{line.word} is right."
        if line.word is None:
            return f"{text[line.start : line.end].split()[0].removesuffix(':')} does not belong."
        return self.says.format(word=line.word, said=line.said, right=meant[line.word][0])


@register("shuffled_critic")
class ShuffledCritic(CriticReward):
    """A critic each of whose marks lies where another mark of the same response belongs: the control of what places tell.

    Totals stay what they are where marks do not overlap and each is worth the same on any place (`spread: even` or `last`).
    """

    def critiques(self, cases: Sequence[tuple[Sample, Response]]) -> list[Asked[Critique] | None]:
        asked = super().critiques(cases)
        return [
            each if each is None or each.value is None else replace(each, value=shuffled(each.value, response.text))
            for each, (_sample, response) in zip(asked, cases, strict=True)
        ]


def shuffled(critique: Critique, text: str) -> Critique:
    """Return the critique with the labels of its spans in a random order, always the same one for a text."""
    spans = critique.annotation.spans
    labels = random.Random(text).sample([span.label for span in spans], len(spans))
    moved = [span.model_copy(update={"label": label}) for span, label in zip(spans, labels, strict=True)]
    return replace(critique, annotation=critique.annotation.model_copy(update={"spans": moved}))
