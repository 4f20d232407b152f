"""What methods of the credit benchmark are told beside the value of an answer: pairs, corrections, marks, criteria.

All answers are those of the writer that the start model learned from, to prompts of the training split.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from credit_language import HERE, OfTask, TaskName
from credit_tasks import Task, numbers, task
from pydantic import Field

from fgrl.kinds import Verifier
from fgrl.registry import File, register
from fgrl.types import Annotation, Criterion, Pair, Response, Sample, Span


class WrittenFor(OfTask):
    """Prompts of one task with the writer's answers."""

    task: TaskName
    """The task."""
    accuracy: float = Field(0.5, ge=0, le=1)
    """Share of right words among those that matter."""
    draws: int = Field(0, ge=0)
    """Other numbers give other answers."""
    known: float = Field(1.0, gt=0, le=1)
    """Share of what parts of the task can ask for that these prompts ask for."""

    def kind(self) -> Task:
        return task(self.task, self.parts, self.fillers)

    def prompts(self) -> Iterator[tuple[str, str, random.Random]]:
        """Yield each prompt with its id and the random numbers of its answers."""
        for number in numbers(self.split, self.count):
            name = f"{self.task}-{number}"
            yield name, self.kind().prompt(number, self.known), random.Random(f"{name} {self.draws}")


@register("task_pairs")
class TaskPairs(WrittenFor):
    """A better and a worse answer to each prompt; equally good answers make no pair.

    With `weight` each token has one: 1 for right words of the better and wrong words of the worse answer, else 0.
    """

    pair: Literal["drawn", "similar", "corrected", "stepwise"] = "drawn"
    """`drawn`: the answers with the highest and the lowest value. `similar`: those with the most and the fewest words of a
    right answer at their places. `corrected`: an answer, and the same with all wrong words corrected. `stepwise`: the
    same in steps, one pair for each corrected word.
    """
    among: int = Field(8, ge=2, le=64)
    """Answers of which two make a pair, where it is `drawn` or `similar`."""
    weight: bool = False
    """Tell which words decide."""

    def read(self) -> Iterator[Sample]:
        for pair in self.pairs():
            responses = [Response(text=pair.rejected), Response(text=pair.chosen)]
            yield Sample(id=pair.id, prompt=pair.prompt, responses=responses)

    def pairs(self) -> Iterator[Pair]:
        kind = self.kind()
        for name, prompt, draw in self.prompts():
            answer = kind.write(prompt, self.accuracy, draw)
            if self.pair in {"drawn", "similar"}:
                drawn = [answer, *(kind.write(prompt, self.accuracy, draw) for _ in range(self.among - 1))]
                right = kind.write(prompt, 1.0, draw)
                marks = [value(kind, prompt, each) if self.pair == "drawn" else common(right, each) for each in drawn]
                worst, best = (drawn[marks.index(each(marks))] for each in (min, max))
                chain = [worst, best] if min(marks) < max(marks) else []
            else:
                chain = corrections(kind, prompt, answer)
                chain = [chain[0], chain[-1]] if self.pair == "corrected" and len(chain) > 1 else chain
            for step, (worse, better) in enumerate(pairwise(chain)):
                worse, better = self.before + worse, self.before + better
                meta = {"weight": decisive(kind, prompt, better, worse)} if self.weight else {}
                yield Pair(id=f"{name}-{step}", prompt=prompt, chosen=better, rejected=worse, meta=meta)


@register("task_marks")
class TaskMarks(WrittenFor):
    """One criterion of each prompt with an answer in which its words are marked, for the relevance of criteria."""

    def read(self) -> Iterator[Sample]:
        kind = self.kind()
        for name, prompt, draw in self.prompts():
            answer = kind.write(prompt, self.accuracy, draw)
            part = draw.randrange(self.parts)
            words, first = answer.split(), part * (kind.fillers + kind.words_that_matter) + kind.fillers
            start = len(self.before) + len(" ".join(words[:first])) + bool(first)
            end = start + len(" ".join(words[first : first + kind.words_that_matter]))
            marked = Response(text=self.before + answer, annotations=[Annotation(spans=[Span(start=start, end=end)])])
            yield Sample(id=name, prompt=prompt, rubric=[criterion(kind, prompt, part)], responses=[marked])


@register("task_criteria")
class TaskCriteria(WrittenFor):
    """Prompts with a criterion for each part of the answer, and a right answer."""

    def read(self) -> Iterator[Sample]:
        kind = self.kind()
        for name, prompt, draw in self.prompts():
            rubric = [criterion(kind, prompt, part) for part in range(self.parts)]
            yield Sample(id=name, prompt=prompt, rubric=rubric, reference=self.before + kind.write(prompt, 1.0, draw))


@register("credit:part")
class RightPart(Verifier):
    """All words that matter in one part of an answer are right."""

    task: TaskName
    """The task whose rule judges."""
    prompt: str
    """The prompt of the answer."""
    part: int = Field(ge=0)
    """Place of the part, from 0."""
    parts: int = Field(8, ge=1, le=64)
    """As of the prompts."""
    fillers: int = Field(2, ge=0, le=64)
    """As of the prompts."""
    tasks: Annotated[str, File] = str(HERE / "credit_tasks.py")
    """The file that defines the rule."""

    def check(self, response: str) -> bool:
        kind = task(self.task, self.parts, self.fillers)
        step = self.fillers + kind.words_that_matter
        judged = kind.judge(self.prompt, response)[self.part * step : (self.part + 1) * step]
        return sum(value > 0 for value in judged) == kind.words_that_matter


def criterion(kind: Task, prompt: str, part: int) -> Criterion:
    """Return the criterion of one part: its place and what is asked there."""
    check = {
        "name": "credit:part",
        "task": kind.name,
        "prompt": prompt,
        "part": part,
        "parts": kind.parts,
        "fillers": kind.fillers,
    }
    return Criterion(text=" ".join([kind.name, str(part), *kind.asked(prompt)[part]]), check=check)


def value(kind: Task, prompt: str, answer: str) -> float:
    """Return the value of an answer: right less wrong words."""
    return sum(kind.judge(prompt, answer))


def common(answer: str, other: str) -> float:
    """Return the number of places with the same word."""
    return float(sum(word == its for word, its in zip(answer.split(), other.split(), strict=True)))


def corrections(kind: Task, prompt: str, answer: str) -> list[str]:
    """Return the answer, then with its first wrong word corrected, and so on to the answer without wrong words."""
    words, chain = answer.split(), [answer]
    step, asked = kind.fillers + kind.words_that_matter, kind.asked(prompt)
    for part in range(kind.parts):
        for place in range(kind.words_that_matter):
            at = part * step + kind.fillers + place
            if kind.judge(prompt, " ".join(words))[at] < 0:
                written = [words[i * step + kind.fillers : (i + 1) * step] for i in range(part)]
                words[at] = kind.right(asked[part], written)[place]
                chain.append(" ".join(words))
    return chain


def decisive(kind: Task, prompt: str, better: str, worse: str) -> dict[str, list[float]]:
    """Return the weights of the tokens of a pair, 0 for the token that ends a response."""
    return {
        "chosen": [*(float(value > 0) for value in kind.judge(prompt, better)), 0.0],
        "rejected": [*(float(value < 0) for value in kind.judge(prompt, worse)), 0.0],
    }
