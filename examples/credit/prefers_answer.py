"""A measure for weighted_dpo.yaml: whether a model finds the sentence with the answer more probable than the sentence
that repeats the question's word.

The two sentences have the form of the training's pairs, so on held-out questions this is the accuracy on held-out pairs.
"""

from __future__ import annotations

import re
from typing import Literal

import torch

from fgrl import DataError, Reward, Rewards, register

LONGEST_SENTENCE = 64
"""Maximum number of tokens of a sentence, with the end-of-sequence token."""


@register("prefers_answer")
class PrefersAnswer(Reward):
    """log p(sentence with the answer) - log p(sentence with the question's own word) of the model that answered; the answer itself is not read."""

    measure: Literal["share", "nats"] = "share"
    """Measure of the difference. `share`: 1 if it is positive, else 0. `nats`: the difference itself, at the
    temperature of sampling.
    """

    def needs(self):
        return frozenset({"policy"})

    def score(self, rollout):
        policy, rows, sentences = rollout.policy, [], []
        for row, sample in enumerate(rollout.samples):
            quoted = re.search(r'"([^"]+)"', str(sample.prompt))
            if quoted is None or not sample.reference:
                raise DataError(f"prompt {sample.id}: wants a question with a quoted word, and a reference")
            reference = sample.reference if isinstance(sample.reference, str) else sample.reference[0]
            for word in (reference, quoted[1]):
                text = f'The opposite of "{quoted[1]}" is {word}.'
                ids = policy.tokenizer(text, add_special_tokens=False).input_ids
                if len(ids) >= LONGEST_SENTENCE:
                    most = LONGEST_SENTENCE - 1
                    raise DataError(f"prompt {sample.id}: the sentence {text!r} has {len(ids)} tokens, at most {most}")
                rows.append(row)
                sentences.append([*ids, policy.tokenizer.eos_token_id])
        scores = policy.score(policy.responses_to(rows, sentences))
        logp = scores.logp.sum(dim=1).view(-1, 2).to(rollout.mask.device)
        nats = logp[:, 0] - logp[:, 1]
        worth = nats if self.measure == "nats" else (nats > 0).float()
        return Rewards(worth, torch.zeros(rollout.mask.shape, device=worth.device), rollout.mask)
