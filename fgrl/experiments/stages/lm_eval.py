"""Public benchmarks through lm-evaluation-harness."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from fgrl.base import lazy
from fgrl.base.errors import DataError, Requires
from fgrl.experiments.stages import names
from fgrl.feedback.templates import read_prompt
from fgrl.kinds import Run, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import File, Folder, Key, Settings, Unkeyed, register
from fgrl.types import Report

harness = lazy.load("fgrl.measuring.harness")


class Benchmark(Settings):
    """A task of the harness. A bare string is `{task: string}`."""

    task: str
    """Name of a task, a group or a tag: `triviaqa`, `truthfulqa_mc1`."""
    num_fewshot: int | None = Field(None, ge=0)
    """Examples before the question; null: as the task says. An error where the task fixes them: `truthfulqa_mc1` and
    `truthfulqa_mc2` are 6-shot as they are, the examples are part of their prompt."""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"task": value} if isinstance(value, str) else value


@register("lm_eval")
class LmEvalStage(Stage):
    """Scores of models on tasks of lm-evaluation-harness (`pip install 'fgrl[eval]'`), whose prompts, filters and
    metrics they are.

    An interval is the harness's own standard error times the normal quantile (with several `answers` that of one
    answer, so wider than it need be). Differences to the baseline are paired by question and resampled, where the
    number is a mean over questions. The harness's results and what it recorded of each question lie in `out/lm_eval/`.
    Tasks fetch their data from the hub, or read files that they name.
    """

    makes = Report

    models: dict[str, ModelSpec] = Field(min_length=1)
    """What to compare, by the names that tables show."""
    baseline: str | None = None
    """Name of the model that differences are taken to; null: none."""
    tasks: list[Benchmark] = Field(min_length=1)
    """What to measure."""
    task_folder: Annotated[str, Folder] | None = None
    """Folder with tasks of your own (the harness's YAML). Data files that they name are relative to it; `!function` in
    them runs code."""
    limit: int | None = Field(None, ge=1)
    """Only this many questions of each task."""
    system_prompt: Annotated[str, File] | None = None
    """File with a system prompt (plain text, or one `[system]` section)."""
    chat_template: bool = False
    """Put questions as a chat, examples as earlier turns; otherwise as plain text, as the harness does by default."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Length limit of generated answers; null: as the task says, else the harness's 256."""
    temperature: float | None = Field(None, ge=0, le=100)
    """Of generated answers; 0 is greedy, null: as the task says."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Generated answers are drawn from the likeliest tokens that have this probability together; null: as the task
    says.
    """
    top_k: int | None = Field(None, ge=0)
    """Generated answers are drawn from this many of the likeliest tokens, 0: from all; null: as the task says."""
    answers: int = Field(1, ge=1)
    """Answers to each question that is answered by generating; numbers are their means. Wants a temperature above 0."""
    level: float = Field(0.95, gt=0, lt=1)
    """Share of the distribution inside the intervals."""
    batch_size: Annotated[int, Unkeyed] = Field(8, ge=1)
    """Sequences at the same time."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Processes that share requests out, one per device; each has all answers that are drawn (a temperature above 0). The result is
    that of one process."""

    @model_validator(mode="after")
    def _check(self) -> LmEvalStage:
        names.check("model", self.models, self.baseline)
        if not self.temperature:
            given = [name for name in ("top_p", "top_k") if getattr(self, name) is not None]
            given += ["answers"] if self.answers > 1 else []
            if given:
                raise ValueError(f"{given[0]} wants a temperature above 0: nothing is drawn without one")
        return self

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        return {("models", name): (model, "lm") for name, model in self.models.items()}

    def check_machine(self) -> None:
        Requires("lm_eval", "the stage lm_eval needs lm-evaluation-harness", extra="eval").check()

    def run(self, run: Run) -> dict[str, Any]:
        self.check_machine()
        return harness.run(self, run, self._system())

    def _system(self) -> str | None:
        """Return the system prompt's text."""
        if self.system_prompt is None:
            return None
        turns = read_prompt(self.system_prompt, known=()).turns
        if len(turns) != 1 or turns[0][0] == "assistant":
            raise DataError(f"{self.system_prompt}: wants the text of a system prompt alone, without other sections")
        return turns[0][1]
