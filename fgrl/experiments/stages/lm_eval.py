"""Evaluation on public benchmarks through lm-evaluation-harness."""

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
    """Task of the harness. A bare string is `{task: string}`."""

    task: str
    """Name of a task, a group or a tag: `triviaqa`, `truthfulqa_mc1`."""
    num_fewshot: int | None = Field(None, ge=0)
    """Number of examples before the question; null: as the task says. It is an error if the task fixes them:
    `truthfulqa_mc1` and `truthfulqa_mc2` are already 6-shot, with the examples in their prompt.
    """

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"task": value} if isinstance(value, str) else value


@register("lm_eval")
class LmEvalStage(Stage):
    """Scores of models on tasks of lm-evaluation-harness (`pip install 'fgrl[eval]'`), with the harness's prompts,
    filters and metrics.

    An interval is the harness's own standard error times the normal quantile (with several `answers` the standard error
    of one answer, so the interval is wider than necessary). Differences to the baseline are paired by question and
    resampled, if the number is a mean over questions. The harness's results and its records of each question are in
    `out/lm_eval/`. Tasks fetch their data from the hub, or read files that they name.
    """

    makes = Report
    requires = Requires("lm_eval", "the stage lm_eval needs lm-evaluation-harness", extra="eval")

    models: dict[str, ModelSpec] = Field(min_length=1)
    """Models to compare, by the names that tables show."""
    baseline: str | None = None
    """Name of the model for differences; null: no differences."""
    tasks: list[Benchmark] = Field(min_length=1)
    """Tasks to measure."""
    task_folder: Annotated[str, Folder] | None = None
    """Folder with the user's own tasks (the harness's YAML). Data files that they name are relative to it; `!function`
    in them runs code.
    """
    limit: int | None = Field(None, ge=1)
    """Maximum number of questions of each task."""
    system_prompt: Annotated[str, File] | None = None
    """File with a system prompt (plain text, or one `[system]` section)."""
    chat_template: bool = False
    """True if questions are put as a chat, with examples as earlier turns; otherwise they are plain text, the default
    of the harness.
    """
    max_new_tokens: int | None = Field(None, ge=1)
    """Maximum length of generated answers in tokens; null: as the task says, else the harness's 256."""
    temperature: float | None = Field(None, ge=0, le=100)
    """Temperature of generated answers; 0 is greedy, null: as the task says."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Probability of the smallest set of likeliest tokens from which generated answers are drawn; null: as the task
    says.
    """
    top_k: int | None = Field(None, ge=0)
    """Number of likeliest tokens from which generated answers are drawn, 0: all tokens; null: as the task says."""
    answers: int = Field(1, ge=1)
    """Number of answers to each question that is answered by generating; the numbers are means over them. More than one
    needs a temperature above 0.
    """
    level: float = Field(0.95, gt=0, lt=1)
    """Confidence level of the intervals."""
    batch_size: Annotated[int, Unkeyed] = Field(8, ge=1)
    """Number of sequences in a batch."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of processes that share the requests, one per device. Each process computes all answers that are sampled
    (temperature above 0). The result is the same as with one process.
    """

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
