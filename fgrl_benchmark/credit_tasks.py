"""Tasks of the credit benchmark: prompts, a writer who is often wrong, and a rule that knows which words are right, wrong or irrelevant.

Prompts and answers are words of a small language. The word at place i of an answer is judged by the word at place i of
the prompt, so that a model of one million weights can learn the relation. An answer has as many words as its prompt,
and no end token.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Literal

Split = Literal["train", "validation", "test"]
SPLITS: dict[Split, range] = {"train": range(0, 7), "validation": range(7, 8), "test": range(8, 10)}
"""Remainders of a prompt's number modulo 10, by split: no prompt is in two splits."""

FILLERS = ["well", "so", "now", "then", "here", "there", "thus", "and", "oh", "indeed", "maybe", "surely"]
PAIRS = """
hot-cold big-small old-new up-down left-right day-night black-white wet-dry fast-slow high-low hard-soft
rich-poor early-late near-far open-shut full-empty long-short loud-quiet clean-dirty sweet-sour
light-heavy thick-thin strong-weak young-aged true-false win-lose give-take push-pull buy-sell love-hate
rise-fall laugh-cry ask-answer begin-end float-sink inside-outside above-below summer-winter
east-west north-south
"""
PARTNERS = [tuple(pair.split("-")) for pair in PAIRS.split()]
DIGITS = [str(digit) for digit in range(10)]
NAMES = ["tom", "ann", "bob", "eve", "sam", "sue", "max", "dan", "jack", "ruth"]
COLOURS = ["red", "blue", "green", "brown", "pink", "gold", "grey", "lime", "navy", "orange"]
CATEGORIES = {
    "fruit": ["apple", "pear", "plum", "peach", "grape", "lemon", "berry", "cherry"],
    "tools": ["hammer", "saw", "drill", "wrench", "knife", "shovel", "clamp", "file"],
    "birds": ["owl", "crow", "hawk", "eagle", "duck", "goose", "gull", "dove"],
    "metals": ["iron", "copper", "zinc", "tin", "silver", "nickel", "lead", "steel"],
    "rooms": ["kitchen", "attic", "office", "hall", "study", "porch", "pantry", "bedroom"],
    "fish": ["trout", "cod", "salmon", "eel", "perch", "carp", "bass", "tuna"],
}
VERBS = {"put": "=", "add": "+=", "cut": "-=", "scale": "*=", "split": "/=", "raise": "**=", "wrap": "%=", "mask": "&="}
OPENING = {"(": ")", "[": "]", "{": "}", "<": ">", "begin": "end", "if": "fi", "do": "done", "for": "next"}


class Task(ABC):
    """A task and its knobs: the number of `parts`, each with one or two words that matter, and `fillers` between them."""

    name: str

    def __init__(self, parts: int, fillers: int) -> None:
        self.parts, self.fillers = parts, fillers

    @property
    def length(self) -> int:
        """Number of words of an answer."""
        return self.parts * (self.fillers + self.words_that_matter)

    words_that_matter = 1
    """Number of words that matter in each part, after its fillers."""

    @abstractmethod
    def vocabulary(self) -> list[str]:
        """Return every word of prompts and answers, apart from fillers."""

    @abstractmethod
    def part(self, draw: random.Random) -> list[str]:
        """Return the words of a prompt that a part of the answer depends on."""

    @abstractmethod
    def right(self, asked: Sequence[str], written: Sequence[Sequence[str]]) -> list[str]:
        """Return the right words of the next part. asked: words of the prompt; written: the parts before it, as they
        were written.
        """

    @abstractmethod
    def wrong(self, right: str, place: int, draw: random.Random) -> str:
        """Return a word that could replace the right one. place: its place in its part."""

    def prompt(self, number: int, known: float = 1.0) -> str:
        """Return prompt `number`: its kind of task, and its parts with fillers, as many words as the answer. known:
        share of all words to ask for that its parts use.
        """
        draw = random.Random(f"{self.name} {self.parts} {self.fillers} {number}")
        words = [self.name]
        for _ in range(self.parts):
            words += [draw.choice(FILLERS) for _ in range(self.fillers)] + self.known_part(draw, known)
        return " ".join(words)

    def known_part(self, draw: random.Random, known: float) -> list[str]:
        """Return a part whose first word is in the first `known` of all, in alphabetical order."""
        part = self.part(draw)
        if known < 1:
            words = asked_first(type(self))
            while part[0] not in words[: round(known * len(words))]:
                part = self.part(draw)
        return part

    def asked(self, prompt: str) -> list[list[str]]:
        """Return the words that matter of a prompt, part by part."""
        words, step = prompt.split()[1:], self.fillers + self.words_that_matter
        return [words[i + self.fillers : i + step] for i in range(0, len(words), step)]

    def write(self, prompt: str, accuracy: float, draw: random.Random) -> str:
        """Return an answer each of whose words that matter is right with probability `accuracy`."""
        words: list[str] = []
        written: list[list[str]] = []
        for asked in self.asked(prompt):
            right = self.right(asked, written)
            chosen = [
                word if draw.random() < accuracy else self.wrong(word, place, draw) for place, word in enumerate(right)
            ]
            words += [draw.choice(FILLERS) for _ in range(self.fillers)] + chosen
            written.append(chosen)
        return " ".join(words)

    def judge(self, prompt: str, answer: str) -> list[float]:
        """Return the value of each word of an answer: 1 right, -1 wrong, 0 irrelevant. A filler at the place of a word
        that matters is wrong; any word at the place of a filler is irrelevant.
        """
        words, step = answer.split(), self.fillers + self.words_that_matter
        values, written = [], []
        asked = self.asked(prompt)
        for number, start in enumerate(range(0, len(words), step)):
            part = words[start : start + step]
            matter = part[self.fillers :]
            right = self.right(asked[number], written) if number < len(asked) else []
            values += [0.0] * min(self.fillers, len(part))
            values += [
                1.0 if place < len(right) and word == right[place] else -1.0 for place, word in enumerate(matter)
            ]
            written.append(matter)
        return values


@cache
def asked_first(kind: type[Task]) -> list[str]:
    """Return the first words of all parts of a task's prompts, in alphabetical order."""
    made = kind(parts=1, fillers=0)
    return sorted({made.part(random.Random(number))[0] for number in range(1000)})


class Opposites(Task):
    """Several independent demands: the opposite of each word."""

    name = "opposites"

    def vocabulary(self) -> list[str]:
        return [word for pair in PARTNERS for word in pair]

    def part(self, draw: random.Random) -> list[str]:
        return [draw.choice(PARTNERS)[0]]

    def right(self, asked: Sequence[str], written: Sequence[Sequence[str]]) -> list[str]:
        return [dict(PARTNERS)[asked[0]]]

    def wrong(self, right: str, place: int, draw: random.Random) -> str:
        return draw.choice([pair[1] for pair in PARTNERS if pair[1] != right])


class Sums(Task):
    """Arithmetic in steps: running sums modulo 10. A step is right if it follows from the sum that was written before it."""

    name = "sums"

    def vocabulary(self) -> list[str]:
        return DIGITS

    def part(self, draw: random.Random) -> list[str]:
        return [draw.choice(DIGITS[1:])]

    def right(self, asked: Sequence[str], written: Sequence[Sequence[str]]) -> list[str]:
        before = written[-1][-1] if written and written[-1] and written[-1][-1] in DIGITS else "0"
        return [str((int(before) + int(asked[0])) % 10)]

    def wrong(self, right: str, place: int, draw: random.Random) -> str:
        return draw.choice([digit for digit in DIGITS if digit != right])


class Facts(Task):
    """A summary of facts, each a person and a liked colour, which has to be repeated. The writer makes mistakes only in
    colours.
    """

    name = "facts"
    words_that_matter = 2

    def vocabulary(self) -> list[str]:
        return [*NAMES, *COLOURS]

    def part(self, draw: random.Random) -> list[str]:
        return [draw.choice(NAMES), draw.choice(COLOURS)]

    def right(self, asked: Sequence[str], written: Sequence[Sequence[str]]) -> list[str]:
        return list(asked)

    def wrong(self, right: str, place: int, draw: random.Random) -> str:
        return right if place == 0 else draw.choice([colour for colour in COLOURS if colour != right])


class Code(Task):
    """A program of lines, each an operator and a digit: a line is wrong where its operator is not that of the verb, or its digit another."""

    name = "code"
    words_that_matter = 2

    def vocabulary(self) -> list[str]:
        return [*VERBS, *VERBS.values(), *DIGITS]

    def part(self, draw: random.Random) -> list[str]:
        return [draw.choice(list(VERBS)), draw.choice(DIGITS)]

    def right(self, asked: Sequence[str], written: Sequence[Sequence[str]]) -> list[str]:
        return [VERBS[asked[0]], asked[1]]

    def wrong(self, right: str, place: int, draw: random.Random) -> str:
        among = list(VERBS.values()) if place == 0 else DIGITS
        return draw.choice([word for word in among if word != right])


class Brackets(Task):
    """Each opened bracket is to be closed by its own kind."""

    name = "brackets"

    def vocabulary(self) -> list[str]:
        return [*OPENING, *OPENING.values()]

    def part(self, draw: random.Random) -> list[str]:
        return [draw.choice(list(OPENING))]

    def right(self, asked: Sequence[str], written: Sequence[Sequence[str]]) -> list[str]:
        return [OPENING[asked[0]]]

    def wrong(self, right: str, place: int, draw: random.Random) -> str:
        return draw.choice([word for word in OPENING.values() if word != right])


class Banned(Task):
    """Forbidden and required words: each part asks for a word of one category; the words of all others are wrong. Eight words are right."""

    name = "banned"

    def vocabulary(self) -> list[str]:
        return [*CATEGORIES, *(word for words in CATEGORIES.values() for word in words)]

    def part(self, draw: random.Random) -> list[str]:
        return [draw.choice(list(CATEGORIES))]

    def right(self, asked: Sequence[str], written: Sequence[Sequence[str]]) -> list[str]:
        said = {word for part in written for word in part}
        unsaid = [word for word in CATEGORIES[asked[0]] if word not in said]
        return [(unsaid or CATEGORIES[asked[0]])[0]]

    def wrong(self, right: str, place: int, draw: random.Random) -> str:
        own = next(words for words in CATEGORIES.values() if right in words)
        return draw.choice([word for words in CATEGORIES.values() if words is not own for word in words])

    def write(self, prompt: str, accuracy: float, draw: random.Random) -> str:
        words: list[str] = []
        for (category,) in self.asked(prompt):
            own = draw.choice(CATEGORIES[category])
            word = own if draw.random() < accuracy else self.wrong(own, 0, draw)
            words += [*(draw.choice(FILLERS) for _ in range(self.fillers)), word]
        return " ".join(words)

    def judge(self, prompt: str, answer: str) -> list[float]:
        step, asked = self.fillers + 1, self.asked(prompt)
        return [
            0.0
            if i % step < self.fillers
            else 1.0
            if i // step < len(asked) and word in CATEGORIES[asked[i // step][0]]
            else -1.0
            for i, word in enumerate(answer.split())
        ]


KINDS: dict[str, type[Task]] = {kind.name: kind for kind in (Opposites, Sums, Facts, Code, Brackets, Banned)}


def task(name: str, parts: int, fillers: int) -> Task:
    """Return a task by name."""
    return KINDS[name](parts, fillers)


def vocabulary() -> list[str]:
    """Return every word of the language once."""
    words = [*KINDS, *FILLERS, *(word for kind in KINDS.values() for word in kind(1, 0).vocabulary())]
    return list(dict.fromkeys(words))


def numbers(split: Split, count: int) -> list[int]:
    """Return the numbers of the first `count` prompts of a split."""
    inside = SPLITS[split]
    return [number for number in range(count * 10 // len(inside) + 10) if number % 10 in inside][:count]
