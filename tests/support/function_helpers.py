"""Files of functions, and rollouts that they score."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from conftest import train_tokenizer

from fgrl import rollouts
from fgrl.registry import Context, build
from fgrl.types import Rollout, Sample


def write(folder: Path, source: str, name: str = "rewards.py") -> Path:
    file = folder / name
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return file


def component(kind: str, folder: Path, **fields: Any) -> Any:
    """A component of this kind, named `function`, as a recipe in `folder` has it."""
    return build(kind, {"name": "function", **fields}, context=Context(folder=lambda path: folder))


def reward_of(folder: Path, source: str, function: str = "score", **fields: Any) -> Any:
    write(folder, source)
    return component("reward", folder, path=f"rewards.py:{function}", **fields)


def rollout_of(
    texts: Sequence[str], prompts: Sequence[Any] | None = None, tokenizer: Any = None, ended: bool = True, **columns: Sequence[Any]
) -> Rollout:  # fmt: skip
    """Each text as a response to a prompt of its own, with offsets; columns are the prompts' meta."""
    tokenizer = tokenizer or train_tokenizer()
    eos = tokenizer.eos_token_id
    ids = [tokenizer(text, add_special_tokens=False).input_ids + [eos] * ended for text in texts]
    samples = [
        Sample(
            id=str(i),
            prompt="?" if prompts is None else prompts[i],
            meta={name: values[i] for name, values in columns.items()},
        )
        for i in range(len(texts))
    ]
    return Rollout(
        **vars(rollouts.pad([[1]] * len(ids), ids, pad_id=0, eos_ids=[eos])), group=torch.arange(len(ids)),
        samples=samples, texts=[rollouts.decode(tokenizer, row) for row in ids],
        offsets=[rollouts.offsets(tokenizer, row) for row in ids],
    )  # fmt: skip
