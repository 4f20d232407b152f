"""The language of the credit benchmark: a small random model that has its words, prompts of a task, and answers to learn it from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from credit_tasks import KINDS, numbers, task, vocabulary
from pydantic import Field
from random_llama import UNKNOWN, RandomLlama, known_words

from fgrl.kinds import Reader
from fgrl.registry import File, register
from fgrl.types import Sample

HERE = Path(__file__).parent
TaskName = Literal["opposites", "sums", "facts", "code", "brackets", "banned"]
assert set(TaskName.__args__) == set(KINDS)


@register("small_language_model")
class SmallLanguageModel(RandomLlama):
    """A random Llama with a token for each word of the tasks."""

    hidden: int = Field(160, ge=8)
    """Width of the model; the feed-forward layers are three times as wide."""
    layers: int = Field(3, ge=1)
    """Number of transformer blocks."""
    tasks: Annotated[str, File] = str(HERE / "credit_tasks.py")
    """File that defines the language."""

    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer, decoders, pre_tokenizers
        from tokenizers.models import WordLevel

        # words with a mark for the space before them: then a token's characters are known without decoding every prefix
        tokenizer = Tokenizer(WordLevel(known_words([f"▁{word}" for word in vocabulary()]), unk_token=UNKNOWN))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        return tokenizer


class OfTask(Reader):
    """Reader of prompts of a task."""

    parts: int = Field(8, ge=1, le=64)
    """Number of parts of a prompt and of its answer."""
    fillers: int = Field(2, ge=0, le=64)
    """Number of irrelevant words in each part."""
    split: Literal["train", "validation", "test"]
    """Split of the prompts; prompts of different splits are different."""
    count: int = Field(ge=1, le=1_000_000)
    """Number of prompts."""
    before: str = ""
    """Text before each answer: a space for tokenizers whose words begin with one."""
    tasks: Annotated[str, File] = str(HERE / "credit_tasks.py")
    """File that defines the tasks."""


@register("task_prompts")
class TaskPrompts(OfTask):
    """Reader of the prompts of one task."""

    task: TaskName
    """Name of the task."""

    def read(self) -> Iterator[Sample]:
        kind = task(self.task, self.parts, self.fillers)
        for number in numbers(self.split, self.count):
            yield Sample(id=f"{self.task}-{number}", prompt=kind.prompt(number))


@register("task_answers")
class TaskAnswers(OfTask):
    """Reader of prompts of several tasks with the answers of a writer who is often wrong, to learn the language
    from.
    """

    accuracy: float = Field(0.5, ge=0, le=1)
    """Share of right words among those that matter."""
    only: list[TaskName] = Field(default=list(KINDS), min_length=1)
    """Names of the tasks."""

    def read(self) -> Iterator[Sample]:
        draw = random.Random(0)
        kinds = [task(name, self.parts, self.fillers) for name in self.only]
        for number in numbers(self.split, self.count):
            for kind in kinds:
                prompt = kind.prompt(number)
                answer = kind.write(prompt, self.accuracy, draw)
                yield Sample(id=f"{kind.name}-{number}", prompt=prompt, reference=self.before + answer)
