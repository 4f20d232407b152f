"""Training of a relevance discriminator, which predicts the tokens of a response on which a criterion's verdict
depends.

Source: "Rubrics to Tokens", section 4.1, Eq. 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr

from fgrl.base import lazy, ops
from fgrl.base.errors import DataError
from fgrl.feedback.templates import Prompt
from fgrl.kinds import Encoded, Numbers, OfflineAlgorithm, Run
from fgrl.registry import File, register
from fgrl.rollouts.relevance_input import prompt_ids, relevance_prompt, response_ids
from fgrl.types import Aggregation, Batch, Mean, Sample, per_token

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("token_bce")
class TokenBCE(OfflineAlgorithm):
    """Binary cross-entropy of a token head. The target is 1 for each token of a marked span of the response, and for
    the end-of-sequence token if the whole response is marked.

    Each sample of its data has one criterion (`rubric`) and a response with marked spans (label +1), as written by the
    annotators `mark_by_rules` and `mark_by_llm`. The model reads plain text, as the relevance component `discriminator`
    does.
    """

    version = 2
    data = "samples"
    head = "token"
    columns: ClassVar = {"relevant": per_token(fill=0)}

    prompt: Annotated[str, File]
    """File with the model's input: a text with {criterion}, and {response} at its end."""
    token_policy: ops.TokenPolicy = ops.TOKEN_POLICY
    """Rule by which a token counts as marked: it lies inside a marked span, apart from white space at its beginning
    (`words`) or completely (`inside`), it starts in the span (`start`), or it shares a character with it (`overlap`). A
    mark inside a single token marks that token.
    """
    aggregate: Aggregation = "token_mean"
    """Average of the loss: over all tokens of an optimizer step (`token_mean`, Eq. 5), or over tokens and then over
    responses (`seq_mean`); `sum` is the sum over all tokens divided by the number of responses.
    """
    positive_weight: float = Field(1.0, gt=0, le=1e6)
    """Weight of marked tokens in the loss."""

    _prompt: Prompt | None = PrivateAttr(None)
    _seen: Counter[str] = PrivateAttr(default_factory=Counter)

    def setup(self, run: Run) -> None:
        self._seen.clear()

    def encode(self, sample: Sample, model: Any, max_tokens: int) -> Encoded:
        """Add the column "relevant" [length]: 1 for marked tokens, 0 for others. A response that is too long loses its
        end.
        """
        response = sample.chosen_response
        if len(sample.rubric) != 1 or response is None:
            raise DataError(
                f"sample {sample.id} has {len(sample.rubric)} criteria and "
                f"{'no' if response is None else 'a'} response: token_bce wants one criterion and a response with "
                "marked spans in each sample, as the annotators mark_by_rules and mark_by_llm make them"
            )
        self._prompt = self._prompt or relevance_prompt(self.prompt)
        prompt = prompt_ids(model.tokenizer, self._prompt, sample.rubric[0].text)
        ids, offsets = response_ids(model, response.text)
        room = max_tokens - len(prompt)
        if room < 1:
            raise DataError(
                f"sample {sample.id}: its criterion takes {len(prompt)} tokens, which leaves none of max_tokens "
                f"{max_tokens} for the response: raise max_tokens"
            )
        spans, text = response.spans, response.text
        marks = ops.spans_to_tokens(spans, offsets, text, self.token_policy, partial=True)
        labels = ops.without_characters(marks, offsets)
        self._seen["responses"] += 1
        self._seen["cut"] += len(ids) > room
        self._seen["spans"] += len(spans)
        uncovered = ops.uncovered_spans(spans, offsets[:room], text, self.token_policy, partial=True)
        self._seen["uncovered"] += len(uncovered)
        return Encoded(prompt, ids[:room], {"relevant": labels[:room]})

    def prepare(self, rows: Sequence[Mapping[str, Any]], run: Run, model: Any) -> None:
        """Report the excluded data: ends of responses that are too long, and marked spans without a token."""
        if self._seen["cut"] or self._seen["uncovered"]:
            run.say(
                f"token_bce: {self._seen['cut']:,} of {self._seen['responses']:,} responses lose their end to max_tokens; "
                f"{self._seen['uncovered']:,} of {self._seen['spans']:,} marked spans have no token"
            )

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return the loss of Eq. 5 over the response tokens of the whole optimizer step. `precision`, `recall`, `f1`
        are at probability 1/2.
        """
        logit, label, mask = model.rewards(batch), batch.columns["relevant"], batch.mask
        weight = torch.where(label > 0, self.positive_weight, 1.0)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logit, label, weight, reduction="none")
        loss = ops.aggregate(losses, mask, self.aggregate, **batch.totals())
        with torch.no_grad():
            predicted, marked = (logit > 0) & mask, (label > 0) & mask
            both, predicted_count, marked_count = (predicted & marked).sum(), predicted.sum(), marked.sum()
            metrics: Numbers = {
                "loss": ops.mean_metric(losses, mask),
                "accuracy": Mean(((predicted == marked) & mask).sum(), mask.sum()),
                "precision": Mean(both, predicted_count),
                "recall": Mean(both, marked_count),
                "f1": Mean(2 * both, predicted_count + marked_count),
                "relevant": Mean(marked_count, mask.sum()),
            }
        return loss, metrics

    def describe(self) -> dict[str, Any]:
        return {"prompt": relevance_prompt(self.prompt).turns[0][1]}
