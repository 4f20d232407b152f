"""Trainings of the recipes in examples/credit on the tiny model, in float32: cut in other ways, in two processes, and killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from forks import forked, in_two_processes
from safetensors.torch import load_file
from scratch_registry import scratch_imports
from tiny_recipe import a_run, weights
from training_helpers import tiny

from fgrl.experiments.recipe import load
from fgrl.training.training_module import TrainingModule

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "credit"
OF_TURNS = ["mt_grpo", "gigpo", "progress", "trace_answer"]
METHODS = [
    "counterfactual", "oar_g", "vine", "top_entropy", "prime", "gtpo", "delta", "rto", "weighted_dpo", "tdpo", "cispo", "dapo",
    "self_distillation", *OF_TURNS,
]  # fmt: skip
OF_PAIRS = ["weighted_dpo", "tdpo"]
OF_ALGORITHM = ["top_entropy", "prime", "gtpo", "delta", "cispo", "dapo"]
"""Their recipes' rewards are of whole responses; those of the others hold one."""
OTHER_MICRO_BATCHES = ["stages.policy.train.micro_batch_size=1"]
WORTH = "def worth(completions, **kwargs):\n    return [sum(map(ord, text)) % 11 / 10 for text in completions]\n"
ONLINE = [
    "stages.policy.rollout.batch_size=8", "stages.policy.rollout.per_prompt=4",
    "stages.policy.rollout.sampling.max_new_tokens=8", "stages.policy.train.iterations=3",
]  # fmt: skip
TALKS = [
    *ONLINE, "stages.policy.rollout.sampling.max_new_tokens=100", "stages.policy.train.epochs=1",
    "vars.game={name: number_game, max_turn_tokens: 10, max_turns: 3}",
]  # fmt: skip
PAIRS = ["stages.policy.holdout=0", "stages.policy.train.epochs=3", "stages.policy.train.checkpoint_every=2"]
OF_METHOD = {
    "counterfactual": ["stages.policy.reward.segmenter={name: ngram, n: 3}"],
    "oar_g": ["stages.policy.train.lr=1e-3", "stages.policy.reward.quantile=0.0"],
    "vine": ["stages.policy.reward.segmenter={name: ngram, n: 3}", "stages.policy.reward.k=2"],
    "top_entropy": [],
    "prime": ["stages.policy.algorithm.prm.lr=2e-2", "stages.policy.algorithm.beta=0.5"],
    "gtpo": ["stages.policy.algorithm.entropy_weight=0.5"],
    "delta": ["stages.policy.algorithm.spread=1.0"],
    "rto": ["stages.policy.reward.beta=0.5", "stages.policy.train.critic_lr=1e-2"],
    "cispo": [],
    "dapo": ["stages.policy.rollout.per_prompt=2"],  # so that some groups have equal rewards
    "self_distillation": [],
    "mt_grpo": [],
    "gigpo": [],
    "progress": ["stages.policy.reward.gamma=0.5"],
    "trace_answer": ["stages.policy.reward.model.dtype=float32"],
    "weighted_dpo": PAIRS,
    "tdpo": PAIRS,
}  # fmt: skip


def pairs_file(folder: Path, base: Path, count: int = 1) -> Path:
    """Pairs with token weights for the tiny model: the ones in examples/credit are for the tokenizer of SmolLM2."""
    encode = tiny(base).tokenizer
    lines = []
    for number in range(count):
        pair = {"prompt": f"Opposite of {'hot' * (number + 1)}?", "chosen": "cold", "rejected": "hot"}
        lengths = {side: len(encode(pair[side], add_special_tokens=False).input_ids) for side in ("chosen", "rejected")}
        weight = {side: [0.5] * (length - 1) + [2.0] for side, length in lengths.items()}
        lines.append(json.dumps({"id": str(number), **pair, "weight": weight}) + "\n")
    (folder / "pairs.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "pairs.jsonl"


def overrides_of(method: str, folder: Path, base: Path) -> list[str]:
    """A recipe in seconds, with a reward that differs between responses of a random model. Its files are in `folder`."""
    common = [
        f"vars.base={base}", "stages.policy.model.dtype=float32", "stages.policy.model.lora={r: 4, alpha: 8}",
        "stages.evaluate=null", "stages.policy.train.lr=1e-2", "stages.policy.train.batch_size=4",
        "stages.policy.train.micro_batch_size=4", "stages.policy.train.warmup=0.0", "stages.policy.train.accelerator=cpu",
        "stages.policy.train.eps=1e-4",  # Adam's usual one makes whole steps of rounding
    ]  # fmt: skip
    if method in OF_PAIRS:
        return [*common, *OF_METHOD[method], f"stages.policy.data.path={pairs_file(folder, base, 8)}"]
    if method in (*OF_TURNS, "self_distillation"):
        return [*common, *(TALKS if method in OF_TURNS else ONLINE), *OF_METHOD[method]]
    (folder / "worth.py").write_text(WORTH, encoding="utf-8")
    alone = teachers(folder, base) if method == "rto" else []
    field = "stages.policy.reward" + ("" if method in OF_ALGORITHM else ".reward")
    reward = f"{field}={{name: function, path: '{folder / 'worth.py'}:worth'}}"
    return [*common, *ONLINE, *OF_METHOD[method], *alone, reward]


def teachers(folder: Path, base: Path) -> list[str]:
    """The policy of rto.yaml without the stages before it: a model with noise in its weights stands for the one that DPO trained."""
    from transformers import AutoModelForCausalLM

    made = shutil.copytree(base, folder / "dpo", dirs_exist_ok=True)
    net, draw = AutoModelForCausalLM.from_pretrained(base), torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.3 * weight.std() * torch.randn(weight.shape, generator=draw))
    net.save_pretrained(made)
    return [
        "stages.dpo=null", "stages.reward_model=null", f"stages.policy.reward.model={{base: '{made}', dtype: float32}}",
        "stages.policy.reward.reward=says_answer", f"stages.policy.critic={{base: '{base}', dtype: float32, lora: {{r: 4, alpha: 8}}}}",
    ]  # fmt: skip


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train(method: str, folder: Path, overrides: Sequence[str], rank: int = 0) -> Path:
    """Train in this process with one thread, from where an earlier one stopped. Returns the folder of the product.

    OpenMP's threads do not outlive a fork: a copy of this process that asked for two would wait for the other one for ever.
    """
    with scratch_imports(), one_thread():
        stage: Any = load(FOLDER / f"{method}.yaml", overrides).stages["policy"]
        stage.run(a_run(folder, rank=rank))
    return folder / "out"


def train_in_two_processes(method: str, folder: Path, overrides: Sequence[str], strategy: str = "ddp") -> Path:
    two = ["stages.policy.train.devices=2", f"stages.policy.train.strategy={strategy}"]
    in_two_processes(lambda rank: train(method, folder, [*overrides, *two], rank))
    return folder / "out"


def train_until_killed(method: str, folder: Path, overrides: Sequence[str], passes: int) -> None:
    """A process of its own trains, and gets SIGKILL before the micro-batch with the number `passes`."""

    def work() -> None:
        whole, calls = TrainingModule.training_step, iter(range(10_000))

        def training_step(self: Any, batch: Any, index: int) -> Any:
            if next(calls) == passes:
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(self, batch, index)

        TrainingModule.training_step = training_step  # type: ignore[method-assign]
        train(method, folder, overrides)

    _process, status = os.waitpid(forked(work), 0)
    assert os.WIFSIGNALED(status), "the training was over before it was to be killed"
    assert os.WTERMSIG(status) == signal.SIGKILL


def weights_of_all(product: Path) -> dict[str, dict[str, str]]:
    """Hashes of the weight files of a product and of the models that were trained beside the policy."""
    return {str(folder.relative_to(product)): weights(folder) for folder in [product, *product.glob("auxiliary/*")]}


def relative_difference(one: Path, two: Path) -> float:
    """Distance between the trained weights of two products, relative to how far the first one's adapter moved from zero.

    An adapter's second matrix starts at zero, so its norm is at most the distance that all trained weights moved.
    """
    squares, moved = 0.0, 0.0
    files = sorted(one.rglob("*.safetensors"))
    assert files
    for file in files:
        first, second = load_file(file), load_file(two / file.relative_to(one))
        assert first.keys() == second.keys()
        for name, value in first.items():
            squares += float((value.double() - second[name].double()).square().sum())
            moved += float(value.double().square().sum()) if "lora_B" in name else 0.0
    assert moved > 1e-6, "the training did not move the weights"
    assert bool(torch.isfinite(torch.tensor(squares)))
    return float((squares / moved) ** 0.5)
