"""Drawing of responses to prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from fgrl.base import lazy, ranks
from fgrl.experiments.stages import sizes
from fgrl.kinds import Engine, Environment, Expected, Peek, Reader, Run, Stage, ToDraw, default_engine
from fgrl.kinds.functions import report_failures
from fgrl.kinds.reader import expected
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.registry import Key, Unkeyed, register
from fgrl.types import DrawnResponse, Response, Sample, Samples, messages_of, read_jsonl, write_jsonl

if TYPE_CHECKING:
    from fgrl.experiments.stages.counting import Work
conversing = lazy.load("fgrl.rollouts.conversing")
counting = lazy.load("fgrl.experiments.stages.counting")
estimating = lazy.load("fgrl.feedback.llm.estimating")
memory = lazy.load("fgrl.training.memory")
rollouts = lazy.load("fgrl.rollouts")
previews = lazy.load("fgrl.experiments.stages.previews")
together = lazy.load("fgrl.feedback.llm.together")

LOST = ".failed.jsonl"
"""Suffix of a part in which the environment failed: another run draws it again."""


@register("sample")
class SampleStage(Stage):
    """Responses to every prompt, `per_prompt` for each, drawn from one model.

    With an environment each response is a conversation: its text is what the model wrote; `meta` has the messages, the
    rewards of the turns and whether it reached its end. A conversation in which the environment failed is left out, and
    counted.
    """

    makes = Samples

    prompts: Reader
    """Reader of the prompts."""
    model: ModelSpec
    """Model to draw from."""
    sampling: Sampling
    """Settings of sampling: temperature, limits and more."""
    per_prompt: int = Field(1, ge=1, le=100_000)
    """Number of responses to each prompt."""
    engine: Engine = Field(default_factory=default_engine)
    """Engine that draws the responses."""
    environment: Environment | None = None
    """Environment that the model interacts with; null: a response is one turn."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of processes that share the prompts, one per device. With servers it must be 1. The result is the same as
    with one process.
    """

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        return {("model",): (self.model, "lm")}

    def estimate(self, peek: Peek) -> dict[str, Any]:
        drawing = sizes.drawing({"model": self.model}, self.sampling, self.engine, peek, per_prompt=self.per_prompt)
        return drawing | sizes.conversations(self.environment, self.sampling) | self._calls(peek)

    def work(self, peek: Peek) -> Iterator[Work]:
        """Yield the work of drawing all responses."""
        given = counting.texts(self.prompts, peek, self.sampling.max_prompt_tokens, self.sampling.max_new_tokens)
        drawn = replace(given, rows=given.rows * self.per_prompt, per_prompt=self.per_prompt)
        role, devices = memory.Role("model", self.model), self.processes()
        return counting.drawing(role, drawn, self.sampling, self.engine, peek, devices=devices)

    def _calls(self, peek: Peek) -> dict[str, Any]:
        """Return an upper bound on the number of questions that the environment asks, for a plan."""
        environment = self.environment
        if environment is None or environment.asked_client() is None:
            return {}

        def compute() -> dict[str, Any] | None:
            self.prompts.setup(peek)
            prompts = list(islice(self.prompts.read(), peek.limit))
            expected = ToDraw(lambda: prompts, lambda: (len(prompts), 1), ["model"], self.per_prompt, self.sampling)
            return estimating.bill(estimating.at_most(environment, expected, peek), bound=True)

        return estimating.section(compute)

    def expects(self, peek: Peek) -> Expected | None:
        prompts = expected(self.prompts, peek)
        known = [count for count in (prompts.samples if prompts else None, peek.limit) if count is not None]
        return Expected(min(known), self.per_prompt) if known else None

    def run(self, run: Run) -> dict[str, Any]:
        run.sampling = self.sampling
        self.setup(run)
        prompts = list(islice(self.prompts.read(), run.limit))
        model = run.model(self.model)
        chunk = max(1, self.engine.at_once(self.sampling.batch_size) // self.per_prompt)
        folder, failures = run.dir / "parts", list[str]()
        folder.mkdir(exist_ok=True)
        batches = [(start, prompts[start : start + chunk]) for start in range(0, len(prompts), chunk)]
        # both ends, so that what another `sampling.batch_size` left unfinished is not taken for a part
        parts = [folder / f"{start:08d}-{start + len(batch):08d}.jsonl" for start, batch in batches]
        missing = [each for i, each in enumerate(batches) if ranks.is_mine(i) and not parts[i].exists()]
        cut = rollouts.cut_prompts(model.tokenizer, prompts, self.sampling.max_prompt_tokens)
        if cut.cut:
            run.say(cut.warning())
        responses = len(prompts) * self.per_prompt
        left = sum(len(batch) for _start, batch in missing) * self.per_prompt
        with self.engine.open(model) as drawer, run.progress("responses", left) as ticker:
            drawer.take(model, 0)
            talker = conversing.talking(drawer, self.environment, model)
            drawn_parts = rollouts.draw_parts(
                model, talker, missing, self.sampling, self.per_prompt, seed=run.seed,
                together=self.engine.elsewhere() is not None and self.environment is None,
            )  # fmt: skip
            for number, drawn in drawn_parts:
                start, batch = missing[number]
                part = parts[start // chunk]
                lost = [each.lost for group in drawn for each in group if each.lost is not None]
                if lost:  # a run that goes on draws it again
                    failures, part = failures + lost, part.with_suffix(LOST)
                write_jsonl(
                    part, (with_drawn(sample, generated) for sample, generated in zip(batch, drawn, strict=True))
                )
                ticker.advance(len(batch) * self.per_prompt)
                run.stop_if_interrupted()
        failures = together.everybody(failures)
        if not ranks.leave():
            return {}
        parts = [part if part.exists() else part.with_suffix(LOST) for part in parts]
        if self.environment is not None and failures:
            report_failures(self.environment, failures, responses, "conversations", run.say)
        count = write_jsonl(run.out / "samples.jsonl", (s for part in parts for s in read_jsonl(part, Sample)))
        left_out = {"missing": len(failures)} if failures else {}
        return {"prompts": count, "responses": responses - len(failures), **left_out, **cut.summary()}

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Yield prompts as the model sees them (those of the environment if there is one), with their references if
        known.
        """
        for part in filter(None, (self.prompts, self.environment)):
            part.setup(run)
        tokenizer, environment = run.model(self.model).tokenizer, self.environment
        prompts, converses = list(islice(self.prompts.read(), count)), environment is not None
        for request, sample in zip(
            rollouts.requests(tokenizer, prompts, self.sampling, 1, seed=run.seed, converses=converses),
            prompts,
            strict=True,
        ):
            prompt = request.prompt
            if environment is not None:
                episode = environment.begin(sample, conversing.seed_of(request))
                prompt = conversing.opening(tokenizer, request, episode)
                episode.close()
            yield previews.of_prompt(sample, tokenizer, prompt)


def with_drawn(sample: Sample, drawn: Sequence[DrawnResponse]) -> Sample:
    """Return the sample with the drawn responses, which replace its own responses."""
    responses = [_record(each) for each in drawn if each.lost is None]
    first = next((each for each in drawn if each.lost is None), None)
    sample = sample if first is None else rollouts.answered([sample], [first])[0]
    return sample.model_copy(update={"responses": responses, "chosen": None, "verdicts": None})


def _record(drawn: DrawnResponse) -> Response:
    if not drawn.turns:
        return drawn.record
    about = {
        "messages": [message.model_dump() for message in messages_of(drawn.turns)],
        "rewards": [turn.reward for turn in drawn.turns],
        "terminated": drawn.terminated,
    }
    text = "\n".join(turn.text for turn in drawn.turns)
    return drawn.record.model_copy(update={"text": text, "meta": drawn.record.meta | about})
