"""Perplexity of the answers under a language model that did not write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fgrl.base import lazy
from fgrl.kinds import Meaning
from fgrl.kinds.specs import ModelSpec, check_lengths
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean
from fgrl.measuring.statistics import Measured, of_sums
from fgrl.registry import Unkeyed, register

rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")


@register("perplexity")
class Perplexity(Comparison):
    """Perplexity of the answers' texts under a scorer, a language model that the recipe names (Text2Grad's Table 8
    names none).

    `nats_per_token`: mean negative log-likelihood over the tokens of all answers. `per_token`: its exponential.
    `per_answer`: the mean of the answers' own perplexities, which one unusual answer can raise greatly. The tokens are
    the scorer's, whichever model wrote the answer, so that different models and answers given as text can be compared.
    An answer without a token is left out. `cut`: share of answers that were too long for `max_tokens` and were scored
    without their end.

    With the model before training as the scorer, `nats_per_token` shows whether answers still make sense to it: the
    report compares it with that model's own answers. `reference_likelihood` reads the same from the evaluation's own
    reference model, on the very tokens that were drawn.
    """

    purpose = "symptom"
    meanings = {
        "nats_per_token": Meaning("cost of the answers under the scorer, nats per token", "lower"),
        "per_token": Meaning("perplexity of the answers", "lower"),
        "per_answer": Meaning("mean perplexity of an answer", "lower"),
        "cut": Meaning("share of answers that were scored without their end"),
    }

    version = 2
    head: ClassVar[str] = "lm"

    scorer: ModelSpec
    """Language model that scores the answers."""
    given: Literal["nothing", "prompt"] = "nothing"
    """Context before an answer: `nothing` except the scorer's token for the beginning of a text (or else its token for
    the end), or the `prompt` in the form that the evaluated models got.
    """
    max_prompt_tokens: int = Field(1024, ge=1)
    """Maximum number of tokens of a prompt; longer prompts lose their beginning."""
    max_tokens: int = Field(2048, ge=2)
    """Maximum number of tokens of prompt and answer together; a longer answer loses its end."""
    batch_size: Annotated[int, Unkeyed] = Field(16, ge=1)
    """Number of answers that are scored at the same time."""

    @model_validator(mode="after")
    def _lengths(self) -> Perplexity:
        if self.given == "prompt":
            check_lengths(self.max_prompt_tokens, self.max_tokens)
        return self

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        return f"scorer {self.scorer.base}, given {'the prompt' if self.given == 'prompt' else 'nothing'}"

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        scored = self._scored(answers)
        sums = [(nats, float(count)) if count else None for nats, count, _cut in scored]
        ids = [answer.id for answer in answers]
        own = [None if row is None else math.exp(row[0] / row[1]) for row in sums]
        return {
            "nats_per_token": of_sums(sums, ids),
            "per_token": of_sums(sums, ids, "perplexity", {}),
            "per_answer": mean(answers, own),
            "cut": mean(answers, [float(cut) for _nats, _count, cut in scored]),
        }

    def _scored(self, answers: Sequence[Answer]) -> list[tuple[float, int, bool]]:
        """Return (negative log-likelihood in nats, number of tokens, True if it was cut) of each answer."""
        model = self._run.model(self.scorer)
        rows = [self._encoded(model, answer) for answer in answers]
        filled = [row for row in rows if row[1]]
        nats: list[float] = []
        with self._run.progress("answers scored", len(filled)) as ticker, torch.no_grad():
            for start in range(0, len(filled), self.batch_size):
                batch = filled[start : start + self.batch_size]
                prompts, texts = [prompt for prompt, _text, _cut in batch], [text for _prompt, text, _cut in batch]
                tokens = rollouts.pad(prompts, texts, pad_id=model.pad_id, eos_ids=model.eos_ids).to(model.device)
                nats += (-model.score(tokens).logp.double().sum(1)).tolist()
                ticker.advance(len(batch))
        values = iter(nats)
        return [(next(values) if text else 0.0, len(text), cut) for _prompt, text, cut in rows]

    def _encoded(self, model: Any, answer: Answer) -> tuple[list[int], list[int], bool]:
        """Return the context for the scorer, the answer's tokens, and whether they were cut."""
        tokenizer = model.tokenizer
        if self.given == "prompt":
            before = rollouts.encode_prompt(tokenizer, answer.sample.prompt, self.max_prompt_tokens)
        else:
            before = [model.end_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id]
        text = list(tokenizer(answer.text, add_special_tokens=False).input_ids)
        room = self.max_tokens - len(before)
        return before, text[:room], len(text) > room
