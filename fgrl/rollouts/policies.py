"""The policy that drew the responses, for rewards, relevances and algorithms whose `needs` contain "policy".

    policy = rollout.policy
    policy.score(tokens, entropy=True)               # log-probabilities and entropies of any tokens
    policy.continuations(row, position, k=8)         # further endings of a response, from any of its tokens
    for rows, part in policy.micro_batches(tokens):  # your own passes
        embeddings, gradient = policy.input_gradient(part, lambda scores: scores.logp.sum())

A stage lends its model for one batch of responses. Outside that time the policy refuses every use, so that no component
computes the credit of one model's answers with another model.

Not available: gradients with respect to the policy's weights (the loss has them), and continuations at another
temperature.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy, seeds
from fgrl.base.errors import DataError, PolicyNotLent
from fgrl.kinds import DrawRequest
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.padding import in_micro_batches, micro_batches, pad_responses
from fgrl.rollouts.responses import as_rollout, given
from fgrl.types import Prompt, Rollout, Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
    from fgrl.kinds import Drawer
    from fgrl.models import LanguageModel, Scores
else:
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")

Place = tuple[int, int]
"""(row, position): the state of response `row` after its first `position` tokens."""


@dataclass
class PolicyUse:
    """Amount of a policy's use by components."""

    forward_tokens: int = 0
    """Real tokens of prompts and responses in passes, without and with a gradient."""
    backward_tokens: int = 0
    """Real tokens in passes with a gradient to the inputs."""
    continuations: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    """Seconds in `score`, `states`, `input_gradient`, `score_embeddings` and continuations; a component's own backward
    passes are not counted.
    """


def metrics_of(uses: Sequence[PolicyUse]) -> dict[str, float]:
    """Return the use of the policy by the components of all processes, for the log."""
    counts = [item.name for item in fields(PolicyUse) if item.name != "seconds"]
    totals = {f"policy/{name}": float(sum(getattr(use, name) for use in uses)) for name in counts}
    return {"seconds/policy": max(use.seconds for use in uses)} | totals


class LentPolicy:
    """A model, lent to the components that score one batch of its responses."""

    def __init__(
        self, model: LanguageModel, drawer: Drawer, sampling: Sampling, *, seed: int, name: str,
        fingerprint: str | None = None, micro_batch_size: int = 8,
    ) -> None:  # fmt: skip
        """Create the lent model. seed: that of the responses. name and fingerprint: name of the model, and an
        identification of its weights.
        """
        self._drawer, self.sampling, self.seed, self.name, self.fingerprint = drawer, sampling, seed, name, fingerprint
        self.micro_batch_size = micro_batch_size
        self.use = PolicyUse()
        self._model, self._lent = model, False

    @contextmanager
    def lend(self) -> Iterator[LentPolicy]:
        """Allow the use of the policy inside the context. It is in evaluation mode and its parameters take no
        gradients; afterwards its earlier state is restored.
        """
        parameters = list(self._model.parameters())
        before = [(parameter.requires_grad, parameter.grad) for parameter in parameters]
        with models.evaluating(self._model):
            for parameter in parameters:
                parameter.requires_grad_(False)
                parameter.grad = None
            self._lent = True
            try:
                yield self
            finally:
                self._lent = False
                for parameter, (trained, gradient) in zip(parameters, before, strict=True):
                    parameter.requires_grad_(trained)
                    parameter.grad = gradient

    def lent_model(self) -> LanguageModel:
        """Return the model itself. Raises `PolicyNotLent` outside `lend`."""
        if not self._lent:
            raise PolicyNotLent(
                f"the policy {self.name} was lent for responses that are scored already: a component that keeps it would credit "
                "other responses with it; take `rollout.policy` of the rollout that is given, each time"
            )
        return self._model

    def drawer(self) -> Drawer:
        """Return the drawer of the model. Raises `PolicyNotLent` outside `lend`."""
        self.lent_model()
        return self._drawer

    @property
    def temperature(self) -> float:
        """Return the temperature of probabilities: that of sampling, or 1 for greedy decoding."""
        return self.sampling.temperature or 1.0

    def of(self, rollout: Rollout) -> Policy:
        """Return the policy, for responses that it drew."""
        return Policy(self, rollout)


class Borrowed:
    """Lent model with all attributes of the model. Each access first checks that it is still lent."""

    def __init__(self, lent: LentPolicy) -> None:
        self._lent = lent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lent.lent_model(), name)


class Policy:
    """Model that drew the responses of a rollout, in evaluation mode."""

    def __init__(self, lent: LentPolicy, rollout: Rollout) -> None:
        self._lent, self._rollout = lent, rollout

    @property
    def model(self) -> Borrowed:
        """Return the `fgrl.models.LanguageModel`. No gradient reaches its parameters or stays on them.

        A component that keeps it gets `PolicyNotLent` when it uses it for other responses.
        """
        self._lent.lent_model()
        return Borrowed(self._lent)

    @property
    def _model(self) -> LanguageModel:
        return self._lent.lent_model()

    @property
    def name(self) -> str:
        return self._lent.name

    @property
    def fingerprint(self) -> str | None:
        """Return an identification of the weights; None while they are trained."""
        return self._lent.fingerprint

    @property
    def sampling(self) -> Sampling:
        """Return the settings with which the responses were drawn."""
        return self._lent.sampling

    @property
    def tokenizer(self) -> Any:
        return self._model.tokenizer

    @property
    def temperature(self) -> float:
        """Return the temperature; see `LentPolicy.temperature`."""
        return self._lent.temperature

    # -- passes --------------------------------------------------------------------------------------------------------

    def score(self, tokens: Tokens, *, entropy: bool = False, only: Tensor | None = None) -> Scores:
        """Return log-probabilities and entropies [B,T] in nats of any prompts and responses, without gradient, in
        micro-batches.

        Entry t is of the distribution before response token t, at the temperature of sampling and without the end
        tokens at positions marked in `tokens.no_end`; 0 outside the mask. only: bool [B,T], the tokens to compute, such
        as those of an answer: the others get 0, and do not go through the output layer. None: all.
        """
        began, model = time.perf_counter(), self._model

        def compute(part: Tokens, *wanted: Tensor) -> dict[str, Tensor]:
            scores = model.score_states(
                model.states(part),
                part,
                only=wanted[0] if wanted else None,
                temperature=self.temperature,
                entropy=entropy,
            )
            return {name: value for name, value in vars(scores).items() if value is not None}

        with torch.no_grad():
            columns = [] if only is None else [only]
            scored = in_micro_batches(tokens, compute, self._lent.micro_batch_size, [model], columns=columns)
        self._count(tokens, began)
        return models.Scores(**scored)

    def states(self, tokens: Tokens) -> Tensor:
        """Return the hidden states [N,h] of one micro-batch before each of its N response tokens, without gradient.
        They are the input of the output layer.
        """
        began = time.perf_counter()
        with torch.no_grad():
            states = self._model.states(tokens)
        self._count(tokens, began)
        return states

    def micro_batches(self, tokens: Tokens, *columns: Tensor) -> Iterator[tuple[Any, ...]]:
        """Yield (row indices [b], these rows of `tokens`, and of each of the `columns` [B,T]) for a component's own
        passes, each row once. Rows are on the model's device, and trimmed to the longest of them.
        """
        return micro_batches(
            tokens, self._lent.micro_batch_size, self._model.device, shared=False, packed=self._model.packed_tokens,
            columns=columns,
        )  # fmt: skip

    def input_gradient(
        self, tokens: Tokens, outcome: Callable[[Scores], Tensor], *, entropy: bool = False, only: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings [B,P+T,h] of one micro-batch, and the gradient of `outcome` with respect to them.

        outcome: function that returns a scalar from the scores of the response tokens, summed over the rows. entropy
        and only: as in `score`.
        """
        with torch.enable_grad():
            embeddings = self.embed(tokens).requires_grad_()
            scores = self.score_embeddings(tokens, embeddings, entropy=entropy, only=only)
            began = time.perf_counter()
            (gradient,) = torch.autograd.grad(outcome(scores), embeddings)
        self._lent.use.seconds += self._since(began)
        return embeddings.detach(), gradient

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the embeddings [B,P+T,h] of prompts and responses, detached: call `requires_grad_()` for a gradient to
        them.
        """
        return self._model.embed(tokens)

    def score_embeddings(
        self, tokens: Tokens, embeddings: Tensor, *, entropy: bool = False, only: Tensor | None = None
    ) -> Scores:
        """Return `score` of one micro-batch, computed from `embeddings` [B,P+T,h] in place of its tokens' own
        embeddings, with a gradient to them.

        Rewards are computed without gradients: compute with the result inside `torch.enable_grad()`.
        """
        began = time.perf_counter()
        with torch.enable_grad():
            states = self._model.states(tokens, embeddings=embeddings)
            scores = self._model.score_states(states, tokens, only=only, temperature=self.temperature, entropy=entropy)
        self._count(tokens, began, gradient=True)
        return scores

    def _count(self, tokens: Tokens, began: float, gradient: bool = False) -> None:
        use, count = self._lent.use, int(tokens.prompt_mask.sum() + tokens.mask.sum())
        use.forward_tokens += count
        use.backward_tokens += count if gradient else 0
        use.seconds += self._since(began)

    def _since(self, began: float) -> float:
        """Return the seconds since `began`, including the work that was sent to a GPU."""
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
        return time.perf_counter() - began

    # -- continuations -------------------------------------------------------------------------------------------------

    def continuations(self, row: int, position: int, k: int, stream: str = "") -> list[list[int]]:
        """Return `k` endings drawn after the first `position` tokens of response `row`, as token ids; see
        `continuations_at`.
        """
        return self.continuations_at([(row, position)], k, stream)[0]

    def continuations_at(self, places: Sequence[Place], k: int, stream: str = "") -> list[list[list[int]]]:
        """Return `k` endings for each (row, position): token ids drawn after the first `position` tokens of response
        `row`, with the settings of the response, within the rest of its `max_new_tokens`. A response that has already
        ended at this position has only empty endings.

        Ending i is drawn from a random stream identified by the seed of the responses, `stream` (a name that the
        component chooses, so that two components draw independently), the response's number, the position and i. So it
        does not depend on batching, on the number of processes, or on a resumed training. Raises ValueError for a place
        that the response does not have.
        """
        if k < 1:
            raise ValueError(f"{k} continuations: wants at least 1")
        began, rollout = time.perf_counter(), self._rollout
        if rollout.turns is not None:
            raise DataError(
                "continuations of a conversation with an environment cannot be drawn: it would have to be played again up to the "
                "position; use a reward that needs no continuations"
            )
        endings: list[list[list[int]]] = [[[] for _ in range(k)] for _ in places]
        left: dict[int, int] = {}
        for number, (row, position) in enumerate(places):
            length = int(rollout.mask[row].sum())
            if not 0 <= position <= length:
                raise ValueError(f"response {row} has {length} tokens, so no position {position}")
            budget = self.sampling.max_new_tokens - position
            if budget > 0 and not bool(rollout.eos[row, :position].any()):
                left[number] = budget
        asked = [
            DrawRequest(
                self._read(*places[number]), self._limited(budget, places[number][1]), self._lent.seed,
                self._stream(*places[number], i, stream),
            )
            for number, budget in left.items() for i in range(k)
        ]  # fmt: skip
        drawn = iter(self._lent.drawer().draw(asked))
        for number in left:
            endings[number] = [next(drawn).token_ids for _ in range(k)]
        use = self._lent.use
        use.continuations += len(left) * k
        use.generated_tokens += sum(len(ids) for own in endings for ids in own)
        use.seconds += time.perf_counter() - began
        return endings

    def _limited(self, budget: int, position: int) -> Sampling:
        """Return the settings of sampling for the text after the first `position` tokens of a response."""
        least = max(0, self.sampling.min_new_tokens - position)
        return self.sampling.model_copy(update={"max_new_tokens": budget, "min_new_tokens": least})

    def completed(self, places: Sequence[Place], k: int, stream: str = "") -> Rollout:
        """Return `continuations_at` as whole responses: rows i k to i k + k - 1 begin with the tokens before
        `places[i]`; their `group` is i.
        """
        endings = self.continuations_at(places, k, stream)
        kept = [self._rollout.response_ids[row, :position].tolist() for row, position in places]
        responses = [beginning + ids for beginning, own in zip(kept, endings, strict=True) for ids in own]
        rollout = self._responses_to(
            [row for row, _position in places for _ in range(k)], responses, self.sampling.min_new_tokens
        )
        rollout.group = torch.arange(len(places)).repeat_interleave(k)
        return rollout

    def responses_to(self, rows: Sequence[int], responses: Sequence[Sequence[int]]) -> Rollout:
        """Return other responses (token ids) to the prompts of these rows, as a rollout with texts and offsets that a
        reward can score.

        They are given, not drawn: any of their tokens may be an end token, whatever `min_new_tokens` is.
        """
        return self._responses_to(rows, responses, min_new_tokens=0)

    def _responses_to(self, rows: Sequence[int], responses: Sequence[Sequence[int]], min_new_tokens: int) -> Rollout:
        whole, model = self._rollout, self._model
        read = [given(model, self._read(row, 0), ids) for row, ids in zip(rows, responses, strict=True)]
        return as_rollout(
            model, read, pad_responses(model, read, min_new_tokens), frozenset({"offsets"}), group=torch.arange(len(rows)),
            samples=[whole.samples[row] for row in rows], temperature=whole.temperature,
        )  # fmt: skip

    def _read(self, row: int, position: int) -> Prompt:
        """Return the prompt and the beginning of a response, as the model reads them."""
        whole = self._rollout
        prompt = whole.prompt_ids[row][whole.prompt_mask[row]].tolist()
        return Prompt((*prompt, *whole.response_ids[row, :position].tolist()))

    def _stream(self, row: int, position: int, k: int, stream: str) -> int:
        name = f"{stream}\0{int(self._rollout.filled('row')[row])}\0{position}\0{k}"
        return seeds.of_name(name)
