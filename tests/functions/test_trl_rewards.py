"""Reward functions written for TRL give the same numbers here, with TRL's own code as the oracle."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl_rewards
from conftest import train_tokenizer
from function_helpers import component, rollout_of, write

from fgrl.types import Message, Rollout

NAMES = [
    "accuracy", "reasoning_accuracy", "think_format", "answer_format", "cosine_scaled", "repetition_penalty", "soft_overlong",
    "close_to_twenty", "unique_letters", "unique_characters", "ground_truth", "math_task", "coding_task", "xml_correctness",
    "integer_answer", "strict_format", "soft_format", "tag_count", "tag_count_and_tail", "token_length", "on_schedule", "judged",
    "with_metric",
]  # fmt: skip
COMPLETIONS = [
    "<think>\nTwo and two.\n</think>\n<answer>\n4\n</answer>\n",
    "<think>It is \\boxed{3}.</think> The answer is \\boxed{4}.",
    "<think>So</think><answer>12</answer> and the lamp, the lamp, the lamp, the lamp",
    "def add(a, b): return a + b",
    "The river runs past the old mill, and in spring the water turns brown.",
    "",
    "\\boxed{1} then \\boxed{2}",
    "<answer>4</answer>",
]
COLUMNS = {
    "solution": ["4", "4", "12", None, "x", None, "2", "4"],
    "ground_truth": ["4", "3", "12", "", "x", "", "1", "4"],
    "answer": ["4", "4", "12", "", "x", "", "2", "4"],
    "task": ["math", "math", "math", "code", "math", "text", "math", "code"],
}
STEP, STEPS = 7, 10


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    prompts = [[Message(role="user", content=f"Question {i}?")] for i in range(len(COMPLETIONS))]
    return rollout_of(COMPLETIONS, prompts, train_tokenizer(), **COLUMNS)


@pytest.fixture(scope="module")
def oracle(rollout: Rollout) -> torch.Tensor:
    """[responses, functions]: what TRL's trainer computes of the same completions."""
    pytest.importorskip("trl", reason="needs trl")
    from accelerate import PartialState
    from trl import GRPOTrainer
    from trl.trainer.utils import start_event_loop_in_daemon

    PartialState(cpu=True)
    thread, loop, ready = start_event_loop_in_daemon("rewards")
    ready.wait()
    functions = [getattr(trl_rewards, name) for name in NAMES]
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=True),
        args=SimpleNamespace(report_to=[]), state=SimpleNamespace(global_step=STEP, max_steps=STEPS),
        reward_funcs=functions, reward_processing_classes=[None] * len(functions), reward_func_names=NAMES,
        environments=None, async_loop=loop, _log_completion_extra=lambda column, values: None,
        _log_metric=lambda name, value: None,
    )  # fmt: skip
    prompts = [[turn.model_dump() for turn in sample.prompt] for sample in rollout.samples]
    completions = [[{"role": "assistant", "content": text}] for text in rollout.texts]
    inputs = [{"prompt": prompt, **sample.meta} for prompt, sample in zip(prompts, rollout.samples, strict=True)]
    ids = [row[: int(mask.sum())] for row, mask in zip(rollout.response_ids.tolist(), rollout.mask, strict=True)]
    try:
        return GRPOTrainer._calculate_rewards(trainer, inputs, prompts, completions, ids)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.equal(ours.nan_to_num(-99.0), theirs.nan_to_num(-99.0))


def reward(**fields: Any) -> Any:
    made = component("reward", Path(trl_rewards.__file__).parent, **fields)
    made.at_step(STEP, STEPS)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_each_function_gives_the_same_numbers(name: str, rollout: Rollout, oracle: torch.Tensor) -> None:
    ours = reward(path=f"trl_rewards.py:{name}").scored(rollout).response
    assert same(ours, oracle[:, NAMES.index(name)])
    known = ours[~ours.isnan()]
    assert len(known)
    assert name == "on_schedule" or len(set(known.tolist())) > 1


def test_their_weighted_sum_is_the_same(rollout: Rollout, oracle: torch.Tensor) -> None:
    weights = [0.1 * (place + 1) for place in range(len(NAMES))]
    ours = reward(paths=[f"trl_rewards.py:{name}" for name in NAMES], weights=weights).scored(rollout).response
    assert same(ours, (oracle * torch.tensor(weights)).nansum(dim=1))


def test_a_response_to_which_no_function_applies_has_no_reward(rollout: Rollout, oracle: torch.Tensor) -> None:
    paths = ["trl_rewards.py:math_task", "trl_rewards.py:coding_task"]
    ours = reward(paths=paths).scored(rollout).response
    places = [NAMES.index(path.partition(":")[2]) for path in paths]
    unscorable = oracle[:, places].isnan().all(dim=1)
    assert [math.isnan(value) for value in ours.tolist()] == unscorable.tolist()
    assert 0 < int(unscorable.sum()) < len(COMPLETIONS)


TRLS_OWN = """
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment, think_format_reward

repetition = get_repetition_penalty_reward(ngram_size=2)
overlong = get_soft_overlong_punishment(max_completion_len=40, soft_punish_cache=20)
"""


@pytest.mark.parametrize("name", ["think_format_reward", "repetition", "overlong"])
def test_functions_of_trl_itself_run(name: str, rollout: Rollout, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs trl")
    file = write(tmp_path, TRLS_OWN)
    scope: dict[str, Any] = {}
    exec(file.read_text(), scope)
    ids = [row[: int(mask.sum())] for row, mask in zip(rollout.response_ids.tolist(), rollout.mask, strict=True)]
    completions = [[{"role": "assistant", "content": text}] for text in rollout.texts]
    theirs = torch.tensor(scope[name](completions=completions, completion_ids=ids))
    assert torch.equal(component("reward", tmp_path, path=f"rewards.py:{name}").scored(rollout).response, theirs)
