"""Conversations that are killed during a draw, between turns and after scoring, and cut over micro-batches and processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_recipe
import torch
from credit_training import one_thread
from forks import forked, in_two_processes
from safetensors.torch import load_file
from scratch_registry import scratch_imports
from stub_engine import stage as stub
from talks import Talk
from training_helpers import tiny

from fgrl import rollouts
from fgrl.components.engines import hf
from fgrl.experiments.recipe import load
from fgrl.kinds import Correction, Drawer
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.conversing import Conversing
from fgrl.training import mismatch
from fgrl.training.online import OnlineRounds
from fgrl.training.stored_rollouts import ROLLOUTS
from fgrl.types import Advantages, DrawnResponse, Rollout, Sample

ENVIRONMENT = '''
from fgrl import Environment, Episode, register

STEPS = []


class Letters(Episode):
    def __init__(self, seed):
        self.letter, self.turn = "aeiou"[seed % 5], 0
        self.prompt = f"Write many {self.letter}"

    def step(self, text):
        STEPS.append(text)
        self.turn += 1
        found = text.count(self.letter)
        return f"{found} of them in turn {self.turn}", found - len(text) % 3, self.turn == 3, False, {}


@register("letters")
class LettersEnvironment(Environment):
    """A letter to write."""

    def begin(self, sample, seed):
        return Letters(seed)
'''
RECIPE = """
about: "A letter to write, in turns."
seed: 3
imports: [letters.py]
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: {base}, dtype: float32, lora: {{r: 4, alpha: 8}}}}
    reward: environment
    algorithm: {{name: grpo}}
    stored_rollouts: 100
    rollout:
      batch_size: 12
      per_prompt: 3
      environment: {{name: letters, max_turn_tokens: 6}}
      sampling: {{max_new_tokens: 80, max_prompt_tokens: 48, batch_size: 12}}
    train: {{lr: 1e-2, warmup: 0.0, iterations: 3, batch_size: 12, micro_batch_size: 4, accelerator: cpu, eps: 1e-4}}
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Path:
    (tmp_path / "letters.py").write_text(ENVIRONMENT)
    (tmp_path / "topics.txt").write_text("\n".join(f"topic {number}" for number in range(12)))
    path = tmp_path / "letters.yaml"
    path.write_text(RECIPE.format(base=tiny_model_dir))
    return path


def train(recipe: Path, folder: Path, *changes: str, rank: int = 0) -> Path:
    """Train in this process, from where an earlier one stopped. Returns the folder of the product."""
    with scratch_imports(), one_thread():
        one: Any = load(recipe, [f"stages.policy.{change}" for change in changes]).stages["policy"]
        one.run(tiny_recipe.a_run(folder, "policy", rank=rank))
    return folder / "out"


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_token(number: int) -> Callable[[], None]:
    """In the middle of a batch of turns."""

    def patch() -> None:
        whole, calls = hf.draw, iter(range(10_000))
        hf.draw = lambda *a, **k: kill() if next(calls) == number else whole(*a, **k)  # type: ignore[assignment]

    return patch


def at_step(number: int) -> Callable[[], None]:
    """When the environment is asked, for the `number`-th time."""

    def patch() -> None:
        call, calls = Conversing.drawing, iter(range(10_000))

        def drawing(self: Conversing) -> Any:
            own = call(self)
            drawn = own._drawn  # type: ignore[attr-defined]

            def stepped(*arguments: Any) -> None:
                if next(calls) == number:
                    kill()
                drawn(*arguments)

            own._drawn = stepped  # type: ignore[attr-defined]
            return own

        Conversing.drawing = drawing  # type: ignore[method-assign]

    return patch


def after_scoring(number: int) -> Callable[[], None]:
    def patch() -> None:
        whole, calls = OnlineRounds._scored, iter(range(10_000))

        def scored(self: OnlineRounds, rollout: Rollout) -> Any:
            rewards = whole(self, rollout)
            if next(calls) == number:
                kill()
            return rewards

        OnlineRounds._scored = scored  # type: ignore[method-assign]

    return patch


def train_until(patch: Callable[[], None], recipe: Path, folder: Path) -> None:
    def work() -> None:
        patch()
        train(recipe, folder)

    _process, status = os.waitpid(forked(work), 0)
    assert os.WIFSIGNALED(status), "the training was over before it was to be killed"
    assert os.WTERMSIG(status) == signal.SIGKILL


def lines(product: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (product / ROLLOUTS).read_text().split("\n") if line]


def test_a_training_that_is_killed_anywhere_ends_with_the_same_bytes(recipe: Path, tmp_path: Path) -> None:
    whole, folder = train(recipe, tmp_path / "whole"), tmp_path / "killed"
    drawn = folder / "drawn"
    for patch, kept in [
        (at_token(3), 0),  # in the first turns of iteration 0
        (at_step(8), 9),  # nine turns are drawn, and the environment has answered to eight
        (at_token(14), None),  # in the third turns
        (after_scoring(0), 48),  # all turns and conversations of iteration 0
        (after_scoring(1), None),  # iteration 1
        (at_step(30), None),
        (at_token(2), None),
    ]:
        train_until(patch, recipe, folder)
        if kept is not None:
            files = list(drawn.glob("0-0.jsonl"))
            assert sum(bool(line) for file in files for line in file.read_text().split("\n")) == kept
    made = train(recipe, folder)
    assert tiny_recipe.weights(made) == tiny_recipe.weights(whole)
    assert (made / ROLLOUTS).read_bytes() == (whole / ROLLOUTS).read_bytes()
    assert tiny_recipe.log(folder) == tiny_recipe.log(tmp_path / "whole")


def test_two_processes_and_micro_batches_train_alike(recipe: Path, tmp_path: Path) -> None:
    whole = train(recipe, tmp_path / "whole")
    ways = [train(recipe, tmp_path / "rows", "train.micro_batch_size=1"), two_processes(recipe, tmp_path / "two")]
    weights = load_file(next(whole.glob("*.safetensors")))
    start = train(recipe, tmp_path / "start", "train.lr=1e-12")
    moved = {n: v - load_file(next(start.glob("*.safetensors")))[n] for n, v in weights.items()}
    assert max(float(value.abs().max()) for value in moved.values()) > 1e-3
    for other in ways:
        found = load_file(next(other.glob("*.safetensors")))
        assert all(torch.allclose(value, found[name], atol=1e-4) for name, value in weights.items())
        same = ("sample", "response", "turn", "turns", "tokens", "token_rewards")
        assert [{n: line.get(n) for n in same} for line in lines(other)] == [
            {n: line.get(n) for n in same} for line in lines(whole)
        ]
    assert len(lines(whole)) == 36
    assert all(len(line["turns"]) == 3 for line in lines(whole))


def two_processes(recipe: Path, folder: Path) -> Path:
    in_two_processes(lambda rank: train(recipe, folder, "train.devices=2", "train.strategy=ddp", rank=rank))
    return folder / "out"


# -- engines -----------------------------------------------------------------------------------------------------------


class Said(Drawer):
    """Says what another drawer has said, as an engine that draws from the very model: without log-probabilities."""

    def __init__(self, known: dict[tuple[int, int], list[DrawnResponse]]) -> None:
        self.known = known

    def draw(self, requests: Any) -> list[DrawnResponse]:
        found = [self.known[one.seed, one.row] for one in requests]
        return [DrawnResponse(list(each.token_ids), each.finish, self.version) for each in found]  # type: ignore[attr-defined]


class Heard(Drawer):
    """Another drawer, whose responses are noted."""

    def __init__(self, drawer: Drawer) -> None:
        self.drawer, self.known = drawer, dict[tuple[int, int], DrawnResponse]()

    def draw(self, requests: Any) -> list[DrawnResponse]:
        drawn = self.drawer.draw(requests)
        self.known |= {(one.seed, one.row): each for one, each in zip(requests, drawn, strict=True)}
        return drawn


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    return tiny(tiny_model_dir, dtype="float32")


def collected(model: Any, drawer: Drawer) -> Rollout:
    prompts = [Sample(id=str(number), prompt=f"Question {number}") for number in range(3)]
    return rollouts.collect(
        model, model, prompts, Sampling(max_new_tokens=120, max_prompt_tokens=48), Conversing(drawer, Talk(max_turn_tokens=7), model),
        frozenset({"old_logp", "ref_logp", "entropy"}), per_prompt=2, seed=11,
    )  # fmt: skip


@pytest.fixture
def both(model: Any, tmp_path: Path) -> Iterator[tuple[Rollout, Rollout, Heard]]:
    """Rollouts of the same ids: drawn by vLLM's engine (a stub), and as by transformers."""
    with stub(tmp_path / "stub", transfer="files") as running, running.engine.open(model) as drawer:
        drawer.take(model, 4)
        heard = Heard(drawer)
        served = collected(model, heard)
        yield served, collected(model, Said(heard.known)), heard  # type: ignore[arg-type]


def test_the_same_ids_have_the_same_columns_with_both_engines(both: tuple[Rollout, Rollout, Heard]) -> None:
    served, own, heard = both
    assert own.drawn_logp is None
    assert own.drawn_version is None
    for name in (
        "prompt_ids",
        "response_ids",
        "mask",
        "eos",
        "turn",
        "turn_reward",
        "terminated",
        "old_logp",
        "ref_logp",
        "entropy",
    ):
        assert torch.equal(getattr(served, name), getattr(own, name)), name
    assert served.texts == own.texts
    assert served.written == own.written
    assert served.lost == own.lost == [None] * 6
    assert served.drawn_version is not None
    assert served.drawn_version.tolist() == [4] * 6
    assert [[t.observation for t in each] for each in served.turns or []] == [
        [t.observation for t in each] for each in own.turns or []
    ]
    assert served.turn is not None
    assert served.drawn_logp is not None
    foreign = served.mask & (served.turn < 0)
    assert int(foreign.sum()) > 50
    assert not served.drawn_logp[foreign].any()
    # each turn's log-probabilities are those that the server gave for it
    given = sorted(tuple(each.token_logp or ()) for each in heard.known.values())
    found = sorted(
        tuple(served.drawn_logp[row][served.turn[row] == number].tolist())
        for row in range(6)
        for number in range(int(served.turn[row].max()) + 1)
    )
    assert [len(each) for each in found] == [len(each) for each in given]
    for one, other in zip(found, given, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def test_the_correction_counts_drawn_tokens_only(both: tuple[Rollout, Rollout, Heard]) -> None:
    served = both[0]
    old, drawn = (getattr(served, name).double().numpy() for name in ("old_logp", "drawn_logp"))
    own = served.drawn.numpy()
    difference = (old - drawn)[own]
    advantages = Advantages(torch.ones(served.mask.shape))
    corrected, metrics = mismatch.corrected(advantages, served, Correction("truncate", 2.0))
    assert metrics["mismatch"] == pytest.approx(abs(difference).mean(), rel=1e-4)
    assert metrics["importance_weight"] == pytest.approx(np.exp(difference).mean(), rel=1e-4)
    weight = np.minimum(2.0, np.exp(difference))
    assert metrics["correction_weight"] == pytest.approx(weight.mean(), rel=1e-4)
    assert corrected.advantage.double().numpy()[own] == pytest.approx(weight, rel=1e-4)
