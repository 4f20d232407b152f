"""Probability of the label at the positions of a response (RLA's ablation RLA-CE, section 4.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from fgrl.base import lazy
from fgrl.feedback.reference_scores import ReferenceScorer
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Unkeyed, register
from fgrl.types import Sample

rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")


@register("cross_entropy")
class CrossEntropy(ReferenceScorer):
    """A response's score is minus the cross-entropy (nats per token) of the label's tokens under the model's
    distributions at the positions of the response: -1/m sum_t -log p(label_t | prompt, response_<t), with m the length
    of the shorter one. If there are several references, the most probable one counts. An empty response has no score.
    Samples without any score, and samples whose references are missing or refusals, are dropped and counted.

    The paper only says that cross-entropy takes the place of the cosine; this formula is the token-wise loss between
    the response's logits and the label. It rewards words at exactly the label's positions, not their meaning.
    """

    model: ModelSpec
    """The model that drew the responses."""
    max_prompt_tokens: int = Field(1024, ge=1)
    """Maximum number of tokens of a prompt; longer prompts lose their beginning."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(32, ge=1)
    """Number of responses that are scored at the same time."""

    def scores(self, rows: Sequence[tuple[Sample, str, list[str]]]) -> list[float | None]:
        model = self._run.model(self.model)
        encoded = [
            (rollouts.encode_prompt(model.tokenizer, sample.prompt, self.max_prompt_tokens), text, labels)
            for sample, text, labels in rows
        ]
        nats = iter(self._scores(model, [(prompt, text, label) for prompt, text, own in encoded for label in own]))
        of_labels = [[score for score in (next(nats) for _ in own) if score is not None] for *_, own in rows]
        return [max(own, default=None) for own in of_labels]

    def _scores(self, model: Any, rows: Sequence[tuple[list[int], str, str]]) -> list[float | None]:
        """Return the mean log-probability of each row's label; None if the response is empty."""
        tokenizer = model.tokenizer
        written = [tokenizer(text, add_special_tokens=False).input_ids for _prompt, text, _label in rows]
        labels = [tokenizer(label, add_special_tokens=False).input_ids for _prompt, _text, label in rows]
        lengths = [min(len(text), len(label)) for text, label in zip(written, labels, strict=True)]
        order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: len(rows[i][0]) + lengths[i])
        scores: list[float | None] = [None] * len(rows)
        with self._run.progress("labels scored", len(order)) as ticker, torch.no_grad():
            for start in range(0, len(order), self.micro_batch_size):
                batch = order[start : start + self.micro_batch_size]
                prompts = [rows[i][0] for i in batch]
                options = {"pad_id": model.pad_id, "eos_ids": model.eos_ids}
                tokens = rollouts.pad(prompts, [written[i][: lengths[i]] for i in batch], **options).to(model.device)
                targets = rollouts.pad(prompts, [labels[i][: lengths[i]] for i in batch], **options).to(model.device)
                states = model.states(tokens)
                logp = model.score_states(states, replace(tokens, response_ids=targets.response_ids)).logp
                means = logp.sum(dim=1) / tokens.mask.sum(dim=1)
                for i, mean in zip(batch, means.tolist(), strict=True):
                    scores[i] = mean
                ticker.advance(len(batch))
        return scores
