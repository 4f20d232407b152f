"""Probability of the right answer after a response, under the policy: the text is the response, a conclusion, and the
prompt's reference. The response may say anything; it counts whether the policy then expects the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fgrl import DataError, Rollout

LONGEST_REFERENCE = 64
"""Tokens of the longest reference. The number bounds the passes that `fgrl plan` reports before the references are
read.
"""


@dataclass
class Probe:
    """Responses with their probes appended."""

    tokens: Rollout
    """One row per response: response i, without its end-of-sequence token, then the conclusion and the reference."""
    answer: torch.Tensor
    """Mask of the reference's tokens, bool [B,T']."""
    response: torch.Tensor
    """Mask of the response's own tokens, bool [B,T']."""

    def mean_logp(self, policy, tokens=None, rows=slice(None)):
        """Return the log-probability of the reference in nats per token, for each probe, or for `tokens`: the probes of
        `rows` with other tokens in the response.
        """
        answer = self.answer[rows]
        scores = policy.score(self.tokens if tokens is None else tokens, only=answer)
        return scores.logp.sum(dim=1) / answer.sum(dim=1)


def probe(rollout, conclusion):
    """Return every response with the conclusion and the first reference of its prompt."""
    policy = rollout.policy
    rows, sizes = [], []
    for row, sample in enumerate(rollout.samples):
        if not sample.reference:
            raise DataError(f"prompt {sample.id} has no reference, whose probability is to be measured")
        reference = sample.reference if isinstance(sample.reference, str) else sample.reference[0]
        said = rollout.response_ids[row][rollout.mask[row] & ~rollout.eos[row]].tolist()
        between, answer = (
            policy.tokenizer(text, add_special_tokens=False).input_ids for text in (conclusion, f" {reference}")
        )
        if len(answer) > LONGEST_REFERENCE:
            raise DataError(
                f"prompt {sample.id}: its reference has {len(answer)} tokens, and at most {LONGEST_REFERENCE} are measured: give the "
                "answer alone, or raise LONGEST_REFERENCE in answer_probe.py"
            )
        rows.append(said + between + answer)
        sizes.append((len(said), len(said) + len(between)))
    tokens = policy.responses_to(range(len(rows)), rows)
    place = torch.arange(tokens.mask.shape[1])
    ends, starts = torch.tensor(sizes).T
    return Probe(tokens, tokens.mask & (place >= starts[:, None]), place < ends[:, None])
