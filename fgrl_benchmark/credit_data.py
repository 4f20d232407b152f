"""Information for methods of the credit benchmark besides the value of an answer: pairs, corrections, marks, criteria.

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
    """Name of the task."""
    accuracy: float = Field(0.5, ge=0, le=1)
    """Share of right words among those that matter."""
    draws: int = Field(0, ge=0)
    """Number that selects the draw of the answers."""
    known: float = Field(1.0, gt=0, le=1)
    """Share of all that parts of the task can ask for which these prompts use."""

    def kind(self) -> Task:
        return task(self.task, self.parts, self.fillers)

    def prompts(self) -> Iterator[tuple[str, str, random.Random]]:
        """Yield each prompt with its id and the random numbers of its answers."""
        for number in numbers(self.split, self.count):
            name = f"{self.task}-{number}"
            yield name, self.kind().prompt(number, self.known), random.Random(f"{name} {self.draws}")


@register("task_pairs")
class TaskPairs(WrittenFor):
    """Reader of a better and a worse answer to each prompt; equally good answers make no pair. With `weight`, each
    token has a weight: 1 for right words of the better and wrong words of the worse answer, else 0.
    """

    pair: Literal["drawn", "similar", "corrected", "stepwise"] = "drawn"
    """Kind of pair. `drawn`: the answers with the highest and the lowest value. `similar`: those with the most and the
    fewest words of a right answer at their places. `corrected`: an answer, and the same answer with all wrong words
    corrected. `stepwise`: the corrections in steps, one pair for each corrected word.
    """
    among: int = Field(8, ge=2, le=64)
    """Number of answers from which two make a pair, if it is `drawn` or `similar`."""
    weight: bool = False
    """Give each token a weight that tells which words decide."""

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
    """Reader of one criterion of each prompt with an answer in which its words are marked, for the relevance of
    criteria.
    """

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
    """Reader of prompts with a criterion for each part of the answer, and a right answer."""

    def read(self) -> Iterator[Sample]:
        kind = self.kind()
        for name, prompt, draw in self.prompts():
            rubric = [criterion(kind, prompt, part) for part in range(self.parts)]
            yield Sample(id=name, prompt=prompt, rubric=rubric, reference=self.before + kind.write(prompt, 1.0, draw))


@register("credit:part")
class RightPart(Verifier):
    """Verifier that all words that matter in one part of an answer are right."""

    task: TaskName
    """Task whose rule judges."""
    prompt: str
    """Prompt of the answer."""
    part: int = Field(ge=0)
    """Place of the part, from 0."""
    parts: int = Field(8, ge=1, le=64)
    """Number of parts, as in the prompts."""
    fillers: int = Field(2, ge=0, le=64)
    """Number of fillers, as in the prompts."""
    tasks: Annotated[str, File] = str(HERE / "credit_tasks.py")
    """File that defines the rule."""

    def check(self, response: str) -> bool:
        kind = task(self.task, self.parts, self.fillers)
        step = self.fillers + kind.words_that_matter
        judged = kind.judge(self.prompt, response)[self.part * step : (self.part + 1) * step]
        return sum(value > 0 for value in judged) == kind.words_that_matter


def criterion(kind: Task, prompt: str, part: int) -> Criterion:
    """Return the criterion of one part: its place and its question."""
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
    """Return the value of an answer: the number of right words minus the number of wrong words."""
    return sum(kind.judge(prompt, answer))


def common(answer: str, other: str) -> float:
    """Return the number of places with the same word."""
    return float(sum(word == its for word, its in zip(answer.split(), other.split(), strict=True)))


def corrections(kind: Task, prompt: str, answer: str) -> list[str]:
    """Return the answer, then the answer with its first wrong word corrected, and so on to the answer without wrong
    words.
    """
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
