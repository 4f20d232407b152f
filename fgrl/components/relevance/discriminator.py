"""Relevance as a trained model sees it ("Rubrics to Tokens", section 4.1, Eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr

from fgrl import lazy, ops
from fgrl.errors import DataError
from fgrl.feedback.relevance_input import prompt_ids, relevance_prompt, response_ids
from fgrl.kinds import Checked, Relevance, Run
from fgrl.registry import File, Unkeyed, register
from fgrl.specs import ModelSpec
from fgrl.templates import Prompt
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor
rollouts = lazy.load("fgrl.rollouts")
sources = lazy.load("fgrl.models.sources")
torch = lazy.load("torch")


@register("discriminator")
class Discriminator(Relevance):
    """A model with a token head reads a criterion and a response, and puts out each token's probability of being relevant.

    It reads text, so its tokenizer need not be the policy's: a token of the policy takes the highest probability among the
    discriminator's tokens that it shares a character with. One without characters, as that which ends a response, takes the
    weight of the discriminator's own end-of-sequence token, which it was trained to call relevant where the whole response is.
    """

    head: ClassVar[str] = "token"

    model: ModelSpec
    """The discriminator: a model that was trained with `head: token`."""
    prompt: Annotated[str, File]
    """What it reads: a text file with {criterion}, and {response} at its end. As it was trained; another one is refused."""
    max_tokens: int = Field(4096, ge=1)
    """Prompt and response together; a longer response has no weights and is counted."""
    truncated: bool = False
    """Cut probabilities down to 0 or 1 (after rounding to bfloat16), as the authors' release does by accident."""
    end: bool = True
    """False gives the token that ends a response weight 0, as in the authors' release: a demand on the whole response then
    makes an outlier of it."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(32, ge=1)
    """Pairs of a criterion and a response that are read at the same time."""

    _model: Any = PrivateAttr(None)
    _prompt: Prompt | None = PrivateAttr(None)
    _counts: dict[str, float] = PrivateAttr(default_factory=dict)

    def setup(self, run: Run) -> None:
        self._prompt = relevance_prompt(self.prompt)
        self._model = run.model(self.model, head=self.head)
        if not self._model.number.trained:
            raise DataError(
                f"discriminator: {self.model.base} has no trained token head, so its weights would mean nothing: take the "
                'checkpoint of a `finetune` stage with the algorithm token_bce, as {base: "${out:discriminator}"}'
            )
        learnt = (sources.locate(self.model, run.path).about() or {}).get("prompt")
        if learnt not in (None, self._prompt.turns[0][1]):
            raise DataError(
                f"discriminator: {self.model.base} was trained to read another prompt than {self.prompt}; set the one that its "
                f"token_bce had, which begins {learnt[:60]!r}"
            )

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"})

    def counts(self) -> dict[str, float]:
        return self._counts

    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        """1. encode each criterion and each response, 2. all pairs in batches, 3. carry over to the policy's
        tokens."""
        assert self._prompt is not None, "setup(run) comes first"
        if rollout.offsets is None:
            raise ValueError("the rollout has no offsets; ask for them in `needs`")
        # 1.
        tokenizer = self._model.tokenizer
        asked = {one.criterion.text: prompt_ids(tokenizer, self._prompt, one.criterion.text) for one in checked}
        read = {one.row: response_ids(self._model, rollout.texts[one.row]) for one in checked}
        short = [
            i
            for i, one in enumerate(checked)
            if len(asked[one.criterion.text]) + len(read[one.row][0]) <= self.max_tokens
        ]
        # 2.
        found: list[Tensor | None] = [None] * len(checked)
        self._counts = {"too_long": 1.0 - len(short) / max(1, len(checked))}
        if not short:
            return found
        tokens = rollouts.pad(
            [asked[checked[i].criterion.text] for i in short], [read[checked[i].row][0] for i in short],
            pad_id=self._model.pad_id, eos_ids=(),
        )  # fmt: skip
        with torch.no_grad():
            logit = rollouts.in_micro_batches(
                tokens, lambda part: {"logit": self._model.rewards(part)}, self.micro_batch_size, self._model.device
            )["logit"]
        relevance = logit.bfloat16().sigmoid().trunc().float() if self.truncated else logit.sigmoid()
        # 3.
        shared = {row: ops.overlaps(offsets, rollout.offsets[row]) for row, (_ids, offsets) in read.items()}
        ended = rollout.eos.any(dim=1).tolist()
        for i, weights in zip(short, relevance, strict=True):
            row = checked[i].row
            theirs, ours = shared[row]
            bare = torch.tensor([start >= end for start, end in rollout.offsets[row]], dtype=torch.bool)
            whole = weights[len(read[row][0]) - 1]
            weight = torch.zeros(len(bare)).scatter_reduce(0, ours, weights[theirs], "amax")
            weight = torch.where(bare, whole, weight)
            if ended[row] and not self.end:
                weight[-1] = 0.0
            found[i] = weight
        return found
