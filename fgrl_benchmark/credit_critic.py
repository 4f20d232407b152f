"""A critic of the credit benchmark: critiques of answers in words of its language, and rewards of what they name (Text2Grad).

A critique has a sentence of four words for each word of an answer that matters: the part in which it stands, the word of the prompt that
asks for it, the word itself, and `true` or `false`.

    0 hot cold true 1 big hot false      of "well so cold oh now hot", where the prompt asks for the opposites of hot and big
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from credit_data import WrittenFor
from credit_language import TaskName
from credit_tasks import Task, task
from pydantic import Field

from fgrl.components.rewards.critic import CriticReward
from fgrl.feedback.critiques import Critique
from fgrl.feedback.llm.asking import Parsed, Question
from fgrl.registry import register
from fgrl.types import Annotation, Request, Sample, Span

VERDICTS = {"true": 1.0, "false": -1.0}
SENTENCE = re.compile(r"(\d+) \S+ (\S+) (true|false)(?= |$)")


@register("task_critiques")
class TaskCritiques(WrittenFor):
    """Prompts with an answer, and a critique of it."""

    def read(self) -> Iterator[Sample]:
        kind = self.kind()
        for name, prompt, draw in self.prompts():
            answer = kind.write(prompt, self.accuracy, draw)
            yield Sample(id=name, prompt=f"{prompt} {answer}", reference=self.before + critique(kind, prompt, answer))


@register("task_critic")
class TaskCritic(CriticReward):
    """The reward `critic` for critiques in the words of the tasks, whose sentences are read one by one, also of a
    critique that was cut off. A sentence about a word that the answer does not have in that part is ignored.
    """

    task: TaskName
    """Name of the task."""
    parts: int = Field(8, ge=1, le=64)
    """Number of parts, as in the prompts."""
    fillers: int = Field(2, ge=0, le=64)
    """Number of fillers, as in the prompts."""

    def read(self, output: str, response: str) -> Parsed[Critique]:
        spans = named(task(self.task, self.parts, self.fillers), output, response)
        return Parsed(Critique(Annotation(spans=spans, critique=output), {}))

    def critique_question(self, request: Request, response: str) -> Question[Critique]:
        return Question(request, lambda output: self.read(output, response), allow_truncated=True)


def critique(kind: Task, prompt: str, answer: str) -> str:
    """Return the critique of an answer."""
    words, values, step = answer.split(), kind.judge(prompt, answer), kind.fillers + kind.words_that_matter
    sentences = []
    for part, asked in enumerate(kind.asked(prompt)):
        for place, ask in enumerate(asked):
            at = part * step + kind.fillers + place
            sentences.append(f"{part} {ask} {words[at]} {'true' if values[at] > 0 else 'false'}")
    return " ".join(sentences)


def named(kind: Task, text: str, answer: str) -> list[Span]:
    """Return the words of an answer that a critique names. If a part has equal words, the critique means the first that
    no sentence was about.
    """
    places = [(word.start(), word.end()) for word in re.finditer(r"\S+", answer)]
    step = kind.fillers + kind.words_that_matter
    found: dict[tuple[int, int], float] = {}
    for part, word, verdict in SENTENCE.findall(text):
        inside = places[int(part) * step : (int(part) + 1) * step]
        fitting = (place for place in inside if answer[slice(*place)] == word and place not in found)
        if place := next(fitting, None):
            found[place] = VERDICTS[verdict]
    return [Span(start=start, end=end, label=label) for (start, end), label in sorted(found.items())]
