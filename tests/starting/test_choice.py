"""`fgrl init` without a kind: what is known about good answers decides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starting.test_init import SHAPES, write_rows

import fgrl
from fgrl.base.errors import UsageError
from fgrl.exchange.starting import choose

NOTHING = {"columns": {}, "reward": False, "tools": False}


@pytest.mark.parametrize(
    ("shape", "asked", "kind", "reason"),
    [
        ("rtt", {}, "rtt", "the rows have demands on the answers"),
        ("chains", {}, "chains", r"marked passages \(these rows would do for sft, too\)"),
        ("dpo", {}, "dpo", "preferred and rejected answers"),
        ("reward_model", {}, "dpo", "preferred and rejected answers"),
        ("sft", {}, "sft", "the rows have answers"),
        ("dpo", {"reward": True}, "grpo", "a reward function is named; to learn from the rows' answers first"),
        ("sft", {"reward": True}, "grpo", "fgrl init sft, then its product as --model"),
        ("rows of prompts", {"reward": True}, "grpo", "a reward function is named$"),
        ("rows of prompts", {"tools": True}, "agent", "tools are named$"),
        ("own names", {"columns": {"chosen": "better", "rejected": "worse"}}, "dpo", "preferred"),
    ],
)
def test_a_kind_is_chosen_by_what_is_known(
    tmp_path: Path, shape: str, asked: dict[str, Any], kind: str, reason: str
) -> None:
    shapes = {
        **SHAPES,
        "rows of prompts": lambda i: {"prompt": f"What is {i}?"},
        "own names": lambda i: {"prompt": f"What is {i}?", "better": f"{i}.", "worse": "No."},
    }
    data = write_rows(tmp_path / "rows.jsonl", [shapes[shape](i) for i in range(8)])
    found, why = choose(data, **NOTHING | asked)
    assert found == kind
    assert re.search(reason, why)


def test_prompts_alone_do_not_decide(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": f"What is {i}?"} for i in range(8)])
    with pytest.raises(UsageError, match="prompts alone"):
        choose(data, **NOTHING)


def test_the_recipe_says_why(tmp_path: Path, tiny_model_dir: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [SHAPES["dpo"](i) for i in range(20)])
    made = fgrl.init(None, data, str(tiny_model_dir), tmp_path / "recipe.yaml", gpu=False, max_new_tokens=8)
    assert made.stages == ["dpo", "evaluate"]
    assert made.assumptions[0] == "dpo, because the rows have preferred and rejected answers"
    assert f"# - {made.assumptions[0]}\n" in (tmp_path / "recipe.yaml").read_text()
