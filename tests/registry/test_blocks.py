"""Every block of settings that a recipe can reach is explained by name and by place."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fgrl import registry
from fgrl.cli import app
from fgrl.experiments.recipe import know_components
from fgrl.registry.docstrings import undocumented


@pytest.fixture(autouse=True)
def _components() -> None:
    know_components()


def shown(*words: str) -> str:
    done = CliRunner().invoke(app, ["show", *words], prog_name="fgrl")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("word", "block", "field"),
    [
        ("rl.train", "OnlineSettings", "lr: float, > 0, <= 1  required"),
        ("rl.alarms", "Alarms", "kl: Alarm {} or null = {above: 100.0}"),
        ("model.lora", "LoraSpec", "alpha: float, > 0, <= 1000000.0 = 32"),
        ("lora", "LoraSpec", "Rank of the adapters."),
        ("sampling", "Sampling", "max_new_tokens: int, >= 1, <= 10000000  required"),
        ("Sampling", "Sampling", "max_prompt_tokens: int, >= 1, <= 10000000 = 1024"),
    ],
)
def test_a_block_is_shown_with_its_fields_and_its_places(word: str, block: str, field: str) -> None:
    text = shown(word)
    assert text.startswith(f"{block}  (") or f"\n{block}  (" in text
    assert field in text
    assert "Used as " in text


def test_a_single_field_and_json() -> None:
    assert "kl_coef: float" in shown("ppo.kl_coef")
    about = json.loads(shown("rl.train", "--json"))
    assert about["block"] == "OnlineSettings"
    assert about["used"] == ["rl.train"]
    assert {"lr", "iterations"} <= {field["name"] for field in about["fields"]}
    assert json.loads(shown("ppo.kl_coef", "--json"))["place"] == "ppo.kl_coef"


def test_a_component_points_to_its_blocks() -> None:
    assert "fgrl show rl.train explains its fields" in shown("rl")


def test_every_block_is_reachable_and_documented() -> None:
    blocks = {cls: used for cls, used in registry.blocks().items() if cls.__module__.startswith("fgrl.")}
    assert len(blocks) > 20
    for cls, used in blocks.items():
        assert (cls.__doc__ or "").strip(), cls
        assert undocumented(cls) == []
        assert cls in {block for place in registry.lookup(used[0]) for block in place.blocks}
