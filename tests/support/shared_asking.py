"""A reward that asks, and a relevance with a model, for recipes of tests. Each weighing leaves a mark in the file $WEIGHED."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from fgrl import Client, Question, Request, Reward, Rewards, register
from fgrl.components.relevance.random import RandomRelevance
from fgrl.feedback.llm.asking import ask
from fgrl.kinds.specs import ModelSpec
from fgrl.types import Message


@register("first_token")
class FirstToken(Reward):
    """The log-probability of the likeliest first token of an answer to the response."""

    client: Client
    """Who answers."""

    def score(self, rollout):
        requests = [
            Request(messages=[Message(role="user", content=text or "-")], max_tokens=1, logprobs=1)
            for text in rollout.texts
        ]
        asked = ask(self.client, [Question(request, str, allow_truncated=True) for request in requests])
        values = torch.tensor([max(each.completion.logprobs.values()) for each in asked])
        last = rollout.mask & ~rollout.mask.roll(-1, dims=1)
        return Rewards(values, torch.where(last, values[:, None], 0.0), last)


@register("weighed")
class Weighed(RandomRelevance):
    """Weights as `random` has them."""

    model: ModelSpec
    """Loaded by nobody."""

    def weigh(self, rollout, checked):
        with Path(os.environ["WEIGHED"]).open("a") as file:
            file.write("x")
        return super().weigh(rollout, checked)
