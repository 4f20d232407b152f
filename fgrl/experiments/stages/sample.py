"""Draw responses to prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from pydantic import Field

from fgrl.base import lazy
from fgrl.experiments.stages import sizes
from fgrl.kinds import Engine, Expected, Peek, Reader, Run, Stage, default_engine
from fgrl.kinds.reader import expected
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.registry import Key, register
from fgrl.types import DrawnResponse, Sample, Samples, read_jsonl, write_jsonl

rollouts = lazy.load("fgrl.rollouts")
previews = lazy.load("fgrl.experiments.stages.previews")


@register("sample")
class SampleStage(Stage):
    """`per_prompt` responses to every prompt, drawn from one model."""

    makes = Samples

    prompts: Reader
    """Where the prompts come from."""
    model: ModelSpec
    """The model to draw from."""
    sampling: Sampling
    """How to draw."""
    per_prompt: int = Field(1, ge=1, le=100_000)
    """Responses to each prompt."""
    engine: Engine = Field(default_factory=default_engine)
    """What draws."""

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        return {("model",): (self.model, "lm")}

    def estimate(self, peek: Peek) -> dict[str, Any]:
        return sizes.drawing({"model": self.model}, self.sampling, self.engine, peek)

    def expects(self, peek: Peek) -> Expected | None:
        prompts = expected(self.prompts, peek)
        known = [count for count in (prompts.samples if prompts else None, peek.limit) if count is not None]
        return Expected(min(known), self.per_prompt) if known else None

    def run(self, run: Run) -> dict[str, Any]:
        self.setup(run)
        prompts = list(islice(self.prompts.read(), run.limit))
        model = run.model(self.model)
        chunk = max(1, self.engine.at_once(self.sampling.batch_size) // self.per_prompt)
        folder, parts = run.dir / "parts", []
        folder.mkdir(exist_ok=True)
        cut = rollouts.cut_prompts(model.tokenizer, prompts, self.sampling.max_prompt_tokens)
        if cut.cut:
            run.say(cut.warning())
        responses = len(prompts) * self.per_prompt
        with self.engine.open(model) as drawer, run.progress("responses", responses) as ticker:
            drawer.take(model, 0)
            for start in range(0, len(prompts), chunk):
                batch = prompts[start : start + chunk]
                # both ends, so that what another `sampling.batch_size` left unfinished is not taken for this part
                part = folder / f"{start:08d}-{start + len(batch):08d}.jsonl"
                parts.append(part)
                if not part.exists():
                    drawn = rollouts.draw(
                        model, drawer, batch, self.sampling, self.per_prompt, seed=run.seed, first=start
                    )
                    write_jsonl(
                        part, (with_drawn(sample, generated) for sample, generated in zip(batch, drawn, strict=True))
                    )
                ticker.advance(len(batch) * self.per_prompt)
                run.stop_if_interrupted()
        count = write_jsonl(run.out / "samples.jsonl", (s for part in parts for s in read_jsonl(part, Sample)))
        return {"prompts": count, "responses": count * self.per_prompt, **cut.summary()}

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Prompts as the model sees them, with their references where these are known."""
        self.prompts.setup(run)
        tokenizer = run.model(self.model).tokenizer
        for sample in islice(self.prompts.read(), count):
            yield previews.of_prompt(sample, tokenizer, self.sampling.max_prompt_tokens)


def with_drawn(sample: Sample, drawn: Sequence[DrawnResponse]) -> Sample:
    """Return the sample with the drawn responses, which replace those that it had."""
    responses = [each.record for each in drawn]
    return sample.model_copy(update={"responses": responses, "chosen": None, "verdicts": None})
