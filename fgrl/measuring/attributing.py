"""Existing responses as rollouts that rewards can score, and a reward's results for criteria."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.kinds import GRADED_NEEDS
from fgrl.measuring.answer import Attribution
from fgrl.rollouts.padding import FROZEN_MICRO_BATCH_SIZE
from fgrl.rollouts.policies import LentPolicy
from fgrl.types import DrawnResponse, Rewards, Rollout, Sample

NO_POLICY = (
    'a component needs "policy" or "entropy": the model that drew the responses, or its entropies at the temperature of sampling. These '
    "responses were not drawn here: use the component in a stage `rl` or `evaluate`, which draw them"
)
DECIMALS = 4
"""Number of decimals of a token's relevance in files and on pages."""


def of_a_model(needs: frozenset[str]) -> frozenset[str]:
    """Return the needs that a language model computes; the others come from the texts."""
    return needs - GRADED_NEEDS


@torch.no_grad()
def as_rollout(
    responses: Sequence[DrawnResponse], model: Any, *, needs: frozenset[str], reference: Any,
    micro_batch_size: int = FROZEN_MICRO_BATCH_SIZE, entropies: Sequence[torch.Tensor] | None = None, samples: Sequence[Sample] | None = None,
    lent_policy: LentPolicy | None = None, first_row: int = 0, min_new_tokens: int = 0,
) -> Rollout:  # fmt: skip
    """Return responses in the tokens of `model` as a rollout with the fields in `needs` filled.

    `entropies` are the reference's, one [length] tensor for each response, if they are already known. `samples` are the
    prompts, one for each response, for rewards that read them; without them no reward can read a prompt or a rubric.
    Every response is a separate group.

    `lent_policy` is the model that drew the responses, the first of which has the number `first_row`. It is required
    for "policy" and for "entropy", which is computed at its temperature of sampling; without it these needs raise
    `DataError`. Log-probabilities are computed at temperature 1. min_new_tokens: bound with which the responses were
    drawn, if any; log-probabilities, entropies and KL are those of the distributions with it.

    If `of_a_model(needs)` is empty, a `models.Vocabulary` is enough as `model`.
    """
    if needs & {"policy", "entropy"} and lent_policy is None:
        raise DataError(NO_POLICY)
    tokens = rollouts.pad_responses(model, responses, min_new_tokens)
    if entropies is not None:
        needs = needs - {"ref_entropy"}
    scores: dict[str, Any] = {}
    if of_a_model(needs):
        temperature = None if lent_policy is None else lent_policy.temperature
        scores |= rollouts.score(
            model, reference, tokens, of_a_model(needs), micro_batch_size=micro_batch_size, entropy_temperature=temperature
        )  # fmt: skip
    rollout = rollouts.as_rollout(
        model, responses, tokens, needs, group=torch.arange(len(responses)), first_row=first_row, lent_policy=lent_policy,
        samples=[Sample(id=str(i), prompt="") for i in range(len(responses))] if samples is None else list(samples),
        **scores,
    )  # fmt: skip
    if entropies is not None:
        rollout.ref_entropy = torch.nn.utils.rnn.pad_sequence(list(entropies), batch_first=True)
    return rollout


def attributions(rewards: Rewards, sample: Sample, i: int, length: int) -> list[Attribution] | None:
    """Return the criteria of response `i` (of `length` tokens) to `sample`, with their verdicts and relevances.

    A reward gives verdict v [B,C] and v x relevance [B,C,T] (section 4.2.2 of "Rubrics to Tokens"); as v is +1 or -1, a
    second factor of v leaves the relevance. If the verdict is missing, the relevance is too. Return None for a reward
    without verdicts.
    """
    if rewards.verdict is None:
        return None
    criteria = []
    for place, criterion in enumerate(sample.rubric[: rewards.verdict.shape[1]]):
        verdict = rewards.verdict[i, place]
        relevance = None
        if rewards.criterion is not None:
            values = rewards.criterion[i, place, :length] * verdict
            relevance = None if bool(values.isnan().any()) else [round(value, DECIMALS) for value in values.tolist()]
        criteria.append(Attribution(criterion.text, None if bool(verdict.isnan()) else bool(verdict > 0), relevance))
    return criteria
