"""A drawer that says what it is told, so that conversations are those of a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgrl import rollouts
from fgrl.kinds import Drawer, DrawRequest, Environment
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.conversing import Conversing, stream_of
from fgrl.types import DrawnResponse, Sample


class Script(Drawer):
    """Says text k in turn k of every conversation."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], rows: int = 1) -> None:
        self.tokenizer = tokenizer
        self.said = {stream_of(row, turn): text for row in range(rows) for turn, text in enumerate(texts)}
        self.prompts: list[str] = []

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        self.prompts += [self.tokenizer.decode(list(request.prompt.token_ids)) for request in requests]
        return [
            DrawnResponse(rollouts.text.encode_response(self.tokenizer, self.said[request.row], self.tokenizer.eos_token_id), "end")
            for request in requests
        ]  # fmt: skip


def played(
    model: Any, environment: Environment, texts: Sequence[str], sample: Sample | None = None, tokens: int = 4000
) -> DrawnResponse:
    """The conversation in which the policy says these texts."""
    environment.setup(None)
    drawer = Conversing(Script(model.tokenizer, texts), environment, model)
    asked = sample or Sample(id="0", prompt="", meta={"seed": 7})
    sampling = Sampling(max_new_tokens=tokens, max_prompt_tokens=2000)
    ((drawn,),) = rollouts.draw(model, drawer, [asked], sampling, 1, seed=0)
    return drawn


def rewards(response: DrawnResponse) -> list[float]:
    return [turn.reward for turn in response.turns]
