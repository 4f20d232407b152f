"""Trials of environments and engines without a training: scripted conversations, and the same draws in several ways."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fgrl import rollouts
from fgrl.kinds import Drawer, DrawRequest, Engine, Environment
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.conversing import Conversing
from fgrl.types import DrawnResponse, Sample

TEXTS = (
    "", " \n", "3", "yes", '{"name": "lookup", "arguments": {"word": ', "<tool_call>{}</tool_call>", "\\boxed{1e999}",
    "\x00\u202e\u2028 💥 \u0301", "0" * 5000, "word " * 20_000,
)  # fmt: skip
"""Texts that policies write, including unusual and huge texts."""
GROUPS, EACH = 6, 4
"""Number of prompts, and of conversations with each of them."""
STEP = EACH + 1
"""Number of conversations in a step. Only one is drawn alone."""
OTHER_CONVERSATION = (
    "the same seed and texts are another conversation: draw from `seed` alone, and keep what changes in the episode; or set "
    "`reproducible = False`"
)
LIMIT = 1_000_000
"""Maximum number of tokens of a scripted conversation, so large that only the environment's own limits matter."""


class Scripted(Drawer):
    """Drawer that writes one of `TEXTS`, chosen by the random stream's number."""

    def __init__(self, model: Any) -> None:
        self.ids = [list(model.tokenizer(text, add_special_tokens=False).input_ids) for text in TEXTS]
        self.end = model.tokenizer.eos_token_id

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        return [DrawnResponse([*self.ids[one.row % len(TEXTS)], self.end], "end") for one in requests]


def of_environment(environment: Environment, samples: Sequence[Sample], model: Any) -> Iterator[tuple[bool, str]]:
    """Yield (whether the check passes, what was found) for scripted conversations."""
    sampling = Sampling(max_new_tokens=LIMIT, max_prompt_tokens=LIMIT)
    asked = rollouts.requests(model.tokenizer, samples[:GROUPS], sampling, EACH, seed=0, converses=True)
    drawer = Conversing(Scripted(model), environment, model)
    drawn = drawer.draw(asked)
    # 1. five values within the time, whatever the texts are
    lost = [each.lost for each in drawn if each.lost is not None]
    turns = [turn for each in drawn for turn in each.turns]
    errors = [turn.error for turn in turns if turn.error is not None]
    raised = (
        f"; it raised on {len(errors)} of them ({errors[0]}), with the reward {environment.error_reward:g}"
        if errors
        else ""
    )
    said = f"answers in {len(turns)} turns to texts that are empty, huge or odd{raised}"
    yield not lost, f"failed in {len(lost)} of {len(drawn)} scripted conversations: {lost[0]}" if lost else said
    # 2. its end
    ended = sum(each.terminated for each in drawn)
    rest = "" if ended else f": all others are truncated after max_turns, {environment.max_turns}"
    yield True, f"{ended} of {len(drawn)} scripted conversations come to their end{rest}"
    # 3. a function of seed and texts, also beside other conversations and in another order
    if not environment.reproducible:
        return
    again, alone = drawer.draw(asked[::-1])[::-1], [drawer.draw([one])[0] for one in asked[::STEP]]
    same = drawn == again and drawn[::STEP] == alone
    yield same, "the same seed and texts are the same conversation" if same else OTHER_CONVERSATION


def of_engine(engine: Engine, samples: Sequence[Sample], model: Any) -> Iterator[tuple[bool, str]]:
    """Yield (whether the check passes, what was found) for responses that an engine draws from a model."""
    sampling = Sampling(max_new_tokens=8, max_prompt_tokens=64)
    asked = rollouts.requests(model.tokenizer, samples[:GROUPS], sampling, EACH, seed=0)
    with engine.open(model) as drawer:
        drawer.take(model, 3)
        drawn = drawer.draw(asked)
        # 1. what a response is
        wrong = next(filter(None, (_wrong(each, model.eos_ids, sampling, engine) for each in drawn)), None)
        yield wrong is None, wrong or f"{len(drawn)} responses: ids, their ends and the version of the weights"
        # 2. a function of seed and row
        alone = [drawer.draw([one])[0] for one in asked[::STEP]]
        drawing = drawer.drawing()
        numbers, late = drawing.submit(asked[:STEP]), asked[STEP:]
        come = {}
        for number, response in drawing:
            come[number] = response
            numbers, late = (range(drawing.submit(late).stop), []) if late else (numbers, late)
        ways = {
            "in another order": (drawn, drawer.draw(asked[::-1])[::-1]), "alone": (drawn[::STEP], alone),
            "as they come (`drawing`)": (drawn, [come[number] for number in numbers]),
        }  # fmt: skip
        differs = [way for way, (one, two) in ways.items() if [o.token_ids for o in one] != [t.token_ids for t in two]]
        same = "the same seed and row are the same response, alone, in another order and as they come"
        yield not differs, f"the same seed and row are other responses {' and '.join(differs)}" if differs else same
        other = drawer.draw([replace(one, seed=1) for one in asked])
        varies = [each.token_ids for each in other] != [each.token_ids for each in drawn]
        yield varies, "another seed: other responses" if varies else "another seed gives the same responses"


def _wrong(drawn: DrawnResponse, ends: Collection[int], sampling: Sampling, engine: Engine) -> str | None:
    """Return what is wrong with a response, or None if nothing is wrong."""
    ids, most = drawn.token_ids, sampling.max_new_tokens
    if not 1 <= len(ids) <= most:
        return f"a response of {len(ids)} tokens: wants 1 to max_new_tokens, {most}"
    if any(token in ends for token in ids[:-1]) or (drawn.finish == "end") != (ids[-1] in ends):
        return (
            f'finish "{drawn.finish}" of {ids}: an end token ({min(ends)}) is the last one, and then alone it is "end"'
        )
    if drawn.finish == "length" and len(ids) < most:
        return f'finish "length" after {len(ids)} of {most} tokens: a request that was given up is an error'
    if engine.correction() is not None and len(drawn.token_logp or ()) != len(ids):
        return "`correction` is not None, and there is not one of `token_logp` for each token"
    return None if drawn.version == 3 else f"version {drawn.version} after `take(weights, 3)`"
