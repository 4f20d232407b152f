"""Relevance predicted by a trained model ("Rubrics to Tokens", section 4.1, Eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr

from fgrl.base import lazy, ops
from fgrl.base.errors import DataError
from fgrl.feedback.templates import Prompt
from fgrl.kinds import Checked, Relevance, Run
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import File, Unkeyed, register
from fgrl.rollouts.relevance_input import prompt_ids, relevance_prompt, response_ids
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor
rollouts = lazy.load("fgrl.rollouts")
sources = lazy.load("fgrl.models.sources")
torch = lazy.load("torch")


@register("discriminator")
class Discriminator(Relevance):
    """A model with a token head reads a criterion and a response, and predicts the probability that each token is
    relevant.

    It reads text, so its tokenizer need not be the policy's: a token of the policy takes the highest probability among
    the discriminator's tokens that it shares a character with. A token without characters, such as the one that ends a
    response, takes the probability of the discriminator's own end-of-sequence token, which is trained to be relevant
    where the whole response is.
    """

    head: ClassVar[str] = "token"

    model: ModelSpec
    """Model of the discriminator, which was trained with `head: token`."""
    prompt: Annotated[str, File]
    """File with its input: a text with {criterion}, and {response} at its end. It must be the prompt of its training.
    """
    max_tokens: int = Field(4096, ge=1)
    """Maximum number of tokens of prompt and response together; a longer response has no weights and is counted."""
    include_eos: bool = True
    """If false, the token that ends a response has weight 0, as in the authors' release. For a criterion on the whole
    response this token is then an outlier.
    """
    micro_batch_size: Annotated[int, Unkeyed] = Field(32, ge=1)
    """Number of pairs of a criterion and a response in one forward pass."""

    _model: Any = PrivateAttr(None)
    _prompt: Prompt | None = PrivateAttr(None)

    def setup(self, run: Run) -> None:
        self._prompt = relevance_prompt(self.prompt)
        self._model = run.model(self.model, head=self.head)
        if not self._model.number.trained:
            raise DataError(
                f"discriminator: {self.model.base} has no trained token head, so its weights would mean nothing: take the "
                'checkpoint of a `finetune` stage with the algorithm token_bce, as {base: "${out:discriminator}"}'
            )
        trained_prompt = (sources.locate(self.model, run.path).about() or {}).get("prompt")
        if trained_prompt not in (None, self._prompt.turns[0][1]):
            raise DataError(
                f"discriminator: {self.model.base} was trained with another prompt than {self.prompt}; set the prompt of its "
                f"token_bce, which begins {trained_prompt[:60]!r}"
            )

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"})

    def divisible_models(self) -> Sequence[Any]:
        return [self._model]

    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        """Return the weights: 1. encode each criterion and each response, 2. read all pairs in batches, 3. transfer the
        probabilities to the policy's tokens.
        """
        assert self._prompt is not None, "setup(run) comes first"
        offsets_of_policy = rollout.filled("offsets")
        # 1.
        tokenizer, texts = self._model.tokenizer, {case.criterion.text for case in checked}
        criteria = {text: prompt_ids(tokenizer, self._prompt, text) for text in texts}
        responses = {case.row: response_ids(self._model, rollout.texts[case.row]) for case in checked}
        pairs = [(criteria[case.criterion.text], responses[case.row][0]) for case in checked]
        short = [i for i, (prompt, response) in enumerate(pairs) if len(prompt) + len(response) <= self.max_tokens]
        # 2.
        weights: list[Tensor | None] = [None] * len(checked)
        self._counts = {"too_long": 1.0 - len(short) / max(1, len(checked))}
        if not short and not self._model.sharded:
            return weights
        tokens = rollouts.pad(
            [pairs[i][0] for i in short], [pairs[i][1] for i in short], pad_id=self._model.pad_id, eos_ids=()
        )
        with torch.no_grad():
            logit = rollouts.in_micro_batches(
                tokens, lambda part: {"logit": self._model.rewards(part)}, self.micro_batch_size, [self._model]
            )["logit"]
        # 3.
        shared = {row: ops.overlaps(offsets, offsets_of_policy[row]) for row, (_ids, offsets) in responses.items()}
        ended = rollout.eos.any(dim=1).tolist()
        for i, probability in zip(short, self.probabilities(logit), strict=True):
            row = checked[i].row
            of_discriminator, of_policy = shared[row]
            no_characters = torch.tensor([start >= end for start, end in offsets_of_policy[row]], dtype=torch.bool)
            end_of_sequence = probability[len(responses[row][0]) - 1]
            weight = torch.zeros(len(no_characters))
            weight = weight.scatter_reduce(0, of_policy, probability[of_discriminator], "amax")
            weight = torch.where(no_characters, end_of_sequence, weight)
            if ended[row] and not self.include_eos:
                weight[-1] = 0.0
            weights[i] = weight
        return weights

    def probabilities(self, logit: Tensor) -> Tensor:
        """Return the relevance in [0, 1] from the token head's output, [N,T]."""
        return logit.sigmoid()


@register("discriminator_truncated")
class TruncatedDiscriminator(Discriminator):
    """`discriminator` with probabilities truncated to 0 or 1 (after rounding to bfloat16), as the authors' release does
    by accident.
    """

    def probabilities(self, logit: Tensor) -> Tensor:
        return logit.bfloat16().sigmoid().trunc().float()
