"""Runs with model folders that are broken or were made to do harm: each is refused in one message, or read as it is."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import peft
import pytest
import transformers
from forks import command
from hostile_folders import CASES, Base, Case
from model_helpers import LORA, stir, tiny
from pipeline_helpers import fgrl_here

from fgrl import models

MEMORY, SECONDS = 3 * 2**30, 60
"""Limits of a process that runs one folder: address space beyond that of the tests, and time."""
RECIPES = {
    "sample": """
about: "Two answers."
stages:
  draw: {name: sample, prompts: {name: lines, path: topics.txt}, model: {base: ./the_model}, sampling: {max_new_tokens: 4}}
""",
    "calibrate": """
about: "Rewards of two pairs."
stages:
  calibrate:
    name: calibrate
    data: {name: jsonl, path: pairs.jsonl, format: preference}
    model: ./base
    reward: {name: segment_rm, model: ./the_model, segmenter: bandit}
    normalizer: location
""",
}


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    """Exit code; negative: the signal that killed it."""
    said: str
    product: str
    """What the stage made; empty where it made nothing."""


def write(folder: Path, recipe: str) -> None:
    """What a run needs beside the model."""
    (folder / "recipe.yaml").write_text(RECIPES[recipe])
    (folder / "topics.txt").write_text("rivers\nlamps\n")
    pairs = [{"prompt": f"Say {word}.", "chosen": "It is good.", "rejected": "No."} for word in ("one", "two", "three")]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


def run(folder: Path, recipe: str, memory: int = MEMORY, seconds: int = SECONDS) -> Ended:
    """A run of a recipe in `folder`, in a fork of this process."""
    write(folder, recipe)

    def limit() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)

    code, said = command(folder, "run", "recipe.yaml", limit=limit)
    product = [
        file.read_text() for file in sorted(folder.glob("runs/stages/*/out/*.json*")) if file.name != "fgrl.json"
    ]
    return Ended(code, said, "\n".join(product))


@pytest.fixture(scope="module")
def sound(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Base], Path]:
    """The sound folders that the hostile ones are made from."""
    root = tmp_path_factory.mktemp("sound")
    shutil.copytree(tiny_model_dir, root / "base")
    net = transformers.AutoModelForCausalLM.from_pretrained(root / "base")
    shutil.copytree(root / "base", root / "sharded")
    (root / "sharded" / "model.safetensors").unlink()
    net.save_pretrained(root / "sharded", max_shard_size="80KB")
    adapted = tiny(root / "base", lora=LORA, trainable=True)
    stir(adapted)
    models.save(adapted, root / "adapter", {})
    models.save(tiny(root / "base", head="scalar", lora=LORA, trainable=True), root / "scalar", {})
    shutil.copytree(root / "base", root / "peft", ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    adapter = peft.get_peft_model(net, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapter.peft_config["default"].base_model_name_or_path = str(root / "base")
    adapter.save_pretrained(root / "peft")
    return lambda base: root / ("base" if base == "whole" else base)


@pytest.fixture(scope="module", autouse=True)
def _libraries_are_loaded(sound: Callable[[Base], Path], tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a run imports late is there before the forks are made, each of which would import it."""
    for recipe, base in (("sample", "whole"), ("calibrate", "scalar")):
        folder = tmp_path_factory.mktemp(recipe)
        shutil.copytree(sound("whole"), folder / "base")
        shutil.copytree(sound(base), folder / "the_model")
        write(folder, recipe)
        done = fgrl_here("run", "recipe.yaml", cwd=folder)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def products(sound: Callable[[Base], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[Base], str]:
    """What a run with the sound folder makes."""
    known: dict[Base, str] = {}

    def made(base: Base) -> str:
        if base not in known:
            folder = tmp_path_factory.mktemp(base)
            shutil.copytree(sound(base), folder / "the_model")
            ended = run(folder, "sample")
            assert ended.code == 0, ended.said
            known[base] = ended.product
        return known[base]

    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.name}".replace("/", "|")[:80])
def test_a_hostile_folder_is_refused_in_one_message_or_read_as_it_is(
    case: Case, sound: Callable[[Base], Path], products: Callable[[Base], str], tmp_path: Path
) -> None:
    shutil.copytree(sound(case.base), tmp_path / "the_model")
    shutil.copytree(sound("whole"), tmp_path / "base")
    case.change(tmp_path / "the_model")
    ended = run(tmp_path, "calibrate" if case.base == "scalar" else "sample")
    assert not [*tmp_path.rglob("it_ran")]
    assert "Traceback" not in ended.said, ended.said
    if case.says is None:
        assert ended.code == 0, ended.said
        assert ended.product == products(case.base)
    else:
        assert ended.code in (2, 3), (ended.code, ended.said)
        assert not ended.product
        named = (line for line in ended.said.splitlines() if "the_model" in line)
        messages = {
            line for line in named if not re.match(r"\s*\d+ \|", line)
        }  # lines of the recipe are quoted like that
        assert [bool(re.search(case.says, message)) for message in messages] == [True], ended.said
