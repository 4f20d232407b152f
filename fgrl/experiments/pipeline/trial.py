"""Small training with a user's component, repeated in other ways that must not change it: `fgrl check`.

The model has random weights and reads bytes. With it a training of three iterations takes a second. Trained weights
then show a dependence on the division into micro-batches, on the number of processes, or on state that a kill loses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.base.console import Console
from fgrl.base.errors import FgrlError, UsageError
from fgrl.kinds import Engine, Environment, OfflineAlgorithm, OnlineAlgorithm, Reward, RewardWrapper
from fgrl.models.writing import write_weights
from fgrl.registry import Component, build, import_file, name_of
from fgrl.registry.names import NotRegistered
from fgrl.types import Column

draws = lazy.load("fgrl.experiments.pipeline.trial_draws")
pipeline = lazy.load("fgrl.experiments.pipeline")
trial_run = lazy.load("fgrl.experiments.pipeline.run")
recipes = lazy.load("fgrl.experiments.recipe")
safetensors = lazy.load("safetensors.torch")

TRIED = ("online_algorithm", "reward", "offline_algorithm", "environment", "engine")
"""Kinds that can be tried in a training."""
STAGE = "trained"
MOST = 1e-3
"""Largest distance of trained weights, as a share of the distance that training moved them, that counts as rounding."""
WORDS = ["sea", "lamp", "bird", "bread", "river", "stone", "cloud", "glass"]
WORTH = "def worth(completions, **kwargs):\n    return [sum(map(ord, text)) % 11 / 10 for text in completions]\n"
KILLED_BEFORE = 3
"""Number of the micro-batch, from 0, before which a training is killed: a checkpoint is written after the second."""


@dataclass(frozen=True)
class Finding:
    """Result of one of the repetitions."""

    held: bool
    text: str


def tried_components(file: Path) -> list[type[Component]]:
    """Return the components of a Python file that can be tried. Raises `UsageError` if there are none."""
    module = import_file(file)
    own = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__]
    found = []
    for cls in own:
        try:
            found += [cls] if issubclass(cls, Component) and name_of(cls)[0] in TRIED else []
        except NotRegistered:
            continue
    if not found:
        raise UsageError(f"{file}: it registers no component of the kinds {', '.join(TRIED)}, which a training can try")
    return found


def write_recipe(cls: type[Component], file: Path, folder: Path) -> Path:
    """Write a recipe that trains with a component, and all files that it reads, into `folder`. Return its path."""
    _write_model(folder / "model")
    (folder / "worth.py").write_text(WORTH, encoding="utf-8")
    name, worth = name_of(cls)[1], {"name": "function", "path": "worth.py:worth", "completions": "text"}
    train = {"lr": 1e-2, "batch_size": 4, "micro_batch_size": 4, "warmup": 0.0, "eps": 1e-4, "accelerator": "cpu"}
    stage: dict[str, Any] = {"model": {"base": "model", "lora": {"r": 4, "alpha": 8}}}
    data = {"name": "jsonl", "path": "rows.jsonl"}
    if issubclass(cls, OfflineAlgorithm):
        reads = {column: cls.columns[column] for column in sorted(build(OfflineAlgorithm, name).reads())}
        rows = [_row(word, cls.data, reads) for word in WORDS]
        form = {
            "format": "preference" if cls.data == "pairs" else "prompts",
            "columns": {"meta": list(reads)} if reads else {},
        }
        stage |= {
            "name": "finetune", "data": data | form, "algorithm": {"name": name}, "max_prompt_tokens": 48, "max_tokens": 96,
            "holdout": 0, "train": train | {"epochs": 3, "checkpoint_every": 2},
        }  # fmt: skip
    else:
        rows = [{"id": word, "prompt": f"Name the {word}.", "reference": word} for word in WORDS]
        given: dict[str, Any] = {"name": name} | ({"reward": worth} if issubclass(cls, RewardWrapper) else {})
        stage |= {
            "name": "rl", "prompts": data | {"format": "prompts"},
            "reward": given if issubclass(cls, Reward) else worth,
            "algorithm": {"name": name if issubclass(cls, OnlineAlgorithm) else "grpo"},
            "rollout": {"batch_size": 8, "per_prompt": 4, "sampling": {"max_new_tokens": 8, "max_prompt_tokens": 48}},
            "train": train | {"iterations": 3},
        }  # fmt: skip
        if issubclass(cls, Environment):
            sampling = {"max_new_tokens": 160, "max_prompt_tokens": 128}
            stage["rollout"] |= {"environment": {"name": name, "max_turn_tokens": 8}, "sampling": sampling}
        elif issubclass(cls, Engine):
            stage["rollout"]["engine"] = name
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    path = folder / "trial.yaml"
    about = f"A trial of {name}."
    path.write_text(
        json.dumps({"about": about, "imports": [str(file.resolve())], "stages": {STAGE: stage}}), encoding="utf-8"
    )
    return path


def findings(
    cls: type[Component], recipe: Path, overrides: Sequence[str], console: Console
) -> Iterator[Finding]:  # fmt: skip
    """Try an environment or an engine without a training, or train once as a whole and then in other ways. Yield the
    result of each.

    Raises the error of the first training; the repetitions would raise it again.
    """
    if issubclass(cls, Environment | Engine):
        yield from _drawn(cls, recipe, overrides)
    runs = recipe.parent / "runs"
    whole = _train(recipe, overrides, runs / "whole", console)
    distance(whole, whole)
    yield Finding(True, "one process, whole optimizer steps: it trains")
    ways = {
        "micro-batches of one row": ["micro_batch_size=1"],
        "two processes (ddp)": ["devices=2", "strategy=ddp"],
    }
    for way, settings in ways.items():
        changes = [f"stages.{STAGE}.train.{setting}" for setting in settings]
        try:
            far = distance(whole, _train(recipe, [*overrides, *changes], runs / way.split()[0], console))
        except FgrlError as error:
            yield Finding(False, f"{way}: {error}")
            continue
        told = f"the weights differ by {far:.1e} of the distance that training moved them"
        yield Finding(far <= MOST, f"{way}: the same up to rounding" if far <= MOST else f"{way}: {told}")
    yield _killed(recipe, overrides, runs / "killed", whole, console)


def _drawn(cls: type[Component], recipe: Path, overrides: Sequence[str]) -> Iterator[Finding]:
    stage: Any = recipes.load(recipe, list(overrides)).stages[STAGE]
    with trial_run.scratch_run(STAGE) as run:
        rollout = stage.rollout
        for component in (stage.prompts, rollout.engine, rollout.environment):
            if component is not None:
                component.setup(run)
        samples, model = list(stage.prompts.read()), run.model(stage.model.model_copy(update={"lora": None}))
        environment = issubclass(cls, Environment)
        look, what = (draws.of_environment, rollout.environment) if environment else (draws.of_engine, rollout.engine)
        for held, text in look(what, samples, model):
            yield Finding(held, text)


def _killed(recipe: Path, overrides: Sequence[str], runs: Path, whole: Path, console: Console) -> Finding:
    way = "killed after the first iteration and continued"
    code = "import sys; from fgrl.experiments.pipeline import trial; trial.train_until_killed(*sys.argv[1:])"
    child = subprocess.run(
        [sys.executable, "-P", "-c", code, str(recipe), str(runs), *overrides],
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != -signal.SIGKILL:
        return Finding(False, f"{way}: it could not be tried: {child.stderr.strip()[-300:]}")
    try:
        made = _train(recipe, overrides, runs, console)
    except FgrlError as error:
        return Finding(False, f"{way}: {error}")
    files = sorted(file.relative_to(whole) for file in whole.rglob("*.safetensors"))
    other = [str(file) for file in files if (whole / file).read_bytes() != (made / file).read_bytes()]
    if not other:
        return Finding(True, f"{way}: the same bytes")
    return Finding(
        False, f"{way}: other bytes in {', '.join(other)}: what changes while training belongs in state_dict()"
    )


def train_until_killed(recipe: str, runs: str, *overrides: str) -> None:
    """Train, and kill this process before a micro-batch of the second iteration."""
    from fgrl.training.training_module import TrainingModule

    step, taken = TrainingModule.training_step, iter(range(KILLED_BEFORE + 1))

    def training_step(self: Any, batch: Any, index: int) -> Any:
        if next(taken) == KILLED_BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, batch, index)

    TrainingModule.training_step = training_step  # type: ignore[method-assign]
    _train(Path(recipe), overrides, Path(runs), Console())


def distance(one: Path, two: Path) -> float:
    """Return the distance between the weights of two products, relative to how far training moved the weights of the
    first.

    An adapter's second matrix starts at zero, so its norm is at most the distance that all trained weights moved.
    """
    squares, moved = 0.0, 0.0
    for file in sorted(one.rglob("*.safetensors")):
        second = safetensors.load_file(two / file.relative_to(one))
        for name, value in safetensors.load_file(file).items():
            squares += float((value.double() - second[name].double()).square().sum())
            moved += float(value.double().square().sum()) if "lora_B" in name else 0.0
    if not moved:
        raise UsageError(
            "the training did not move the weights, so there is nothing to compare: all rewards of the trial's texts, which are random "
            f"bytes, may be equal. Change the trial by overrides, such as stages.{STAGE}.prompts.path=my_rows.jsonl"
        )
    return float((squares / moved) ** 0.5)


def _train(recipe: Path, overrides: Sequence[str], runs: Path, console: Console) -> Path:
    """Train, and return the folder of the product."""
    loaded = recipes.load(recipe, list(overrides))
    summary = pipeline.execute(loaded, runs, pipeline.Options(arguments=overrides), console)
    if summary.exit:
        raise TrialFailed(str(summary.error), summary.exit)
    return Path(pipeline.plan(loaded, runs)[STAGE].dir / "out")


class TrialFailed(FgrlError):
    """A trial training ended with an error."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def _row(word: str, data: str, reads: Mapping[str, Column]) -> dict[str, Any]:
    """Return a pair or a sample, with numbers in the columns that come with the data."""
    sides = (
        {"chosen": f"{word} is it.", "rejected": f"no {word}"} if data == "pairs" else {"reference": f"{word} is it."}
    )
    row: dict[str, Any] = {"id": word, "prompt": f"Name the {word}.", **sides}
    for name, column in reads.items():
        numbers = {
            side: [1.0 + 0.1 * place for place in range(len(text))] if column.axes else 1.0 + 0.1 * len(text)
            for side, text in sides.items()
        }
        row[name] = numbers if data == "pairs" else numbers["reference"]
    return row


def _write_model(folder: Path) -> None:
    """Save a random Llama of two layers with a tokenizer of bytes."""
    import tokenizers
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>"]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate([*special, *alphabet])}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=special[0], bos_token=special[1], eos_token=special[2]
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, initializer_range=0.2,
            pad_token_id=0, bos_token_id=1, eos_token_id=2,
        ))  # fmt: skip
    with redirect_stderr(StringIO()):  # a progress bar
        write_weights(model, folder)
    tokenizer.save_pretrained(folder)
