"""Names of other toolkits: those of the table are names of theirs, and what they are called here exists."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fgrl import registry
from fgrl.base import foreign
from fgrl.cli import app
from fgrl.experiments.recipe.merging import TOP

EXTRACTED = json.loads(Path(__file__).with_name("foreign_names.json").read_text(encoding="utf-8"))
TOOLKITS = ("TRL", "OpenRLHF", "verl", "axolotl")
ROLES = ("prompt", "messages", "response", "chosen", "rejected")


def named(kind: str) -> set[tuple[str, str]]:
    """(toolkit, name) of every name in a part of the table."""
    return {
        (toolkit, name)
        for by_toolkit in foreign.table()[kind].values()
        for toolkit, names in by_toolkit.items()
        for name in ([names] if isinstance(names, str) else names)
    }


def test_every_toolkit_was_read() -> None:
    assert set(EXTRACTED) == set(TOOLKITS)
    assert all(len(names["keys"]) > 200 and names["versions"] for names in EXTRACTED.values())


@pytest.mark.parametrize(("kind", "part"), [("settings", "keys"), ("commands", "commands")])
def test_every_name_is_one_of_its_toolkit(kind: str, part: str) -> None:
    names = named(kind)
    assert {toolkit for toolkit, _ in names} == set(TOOLKITS)
    assert [one for one in sorted(names) if one[1] not in EXTRACTED[one[0]][part]] == []


def test_the_names_of_trl_are_those_of_the_installed_one() -> None:
    trl = pytest.importorskip("trl", reason="needs trl")
    configs = (trl.GRPOConfig, trl.DPOConfig, trl.SFTConfig, trl.RewardConfig, trl.ModelConfig)
    fields = {field.name for config in configs for field in dataclasses.fields(config)}
    assert fields <= set(EXTRACTED["TRL"]["keys"]), (
        "write tests/registry/foreign_names.json again (tools/foreign_names.py)"
    )
    assert len([name for toolkit, name in named("settings") if toolkit == "TRL" and name in fields]) > 35


def test_what_is_named_here_exists() -> None:
    fields = {place.path for place in registry.places()}
    ends = {path.partition(".")[2] for path in fields if path.startswith(("rl.", "finetune."))}
    algorithms = {path.partition(".")[2] for path in fields}
    for target in foreign.table()["settings"]:
        path = target.partition(":")[0]
        first, _, rest = path.partition(".")
        assert path in ends or path in TOP or (first in ("algorithm", "reward") and (rest in algorithms | {"name"})), (
            path
        )
    commands = {info.name or info.callback.__name__ for info in app.registered_commands if info.callback}
    assert {target.split()[0] for target in foreign.table()["commands"]} <= commands


@pytest.mark.parametrize("command", sorted({name for _, name in named("commands")}))
def test_a_command_is_answered_with_ours(command: str) -> None:
    answer = CliRunner().invoke(app, [command, "own.yaml"])
    assert answer.exit_code == 2
    assert f"Did you mean: fgrl {next(iter(foreign.commands()[command])).split()[0]}" in answer.output


def test_usual_columns_are_those_of_the_toolkits() -> None:
    theirs = {name for names in EXTRACTED.values() for name in names["columns"]}
    for role in ROLES:
        assert set(foreign.columns(role)) & theirs, role
    used = {"prompt", "completion", "chosen", "rejected", "reject", "messages", "conversations", "response"}
    used |= {"instruction", "input", "output", "question", "answer", "solution"}
    assert used <= theirs
    assert used <= {name for role in ROLES for name in foreign.columns(role)}


def test_a_path_is_found_whole_and_by_its_last_part() -> None:
    assert foreign.places("actor_rollout_ref.rollout.n") == ["rollout.per_prompt"]
    assert foreign.places("ppo_mini_batch_size") == ["train.batch_size"]
    assert foreign.places("n") == []
    assert foreign.places("kl_coef")[0] == "algorithm.kl_coef"
    assert foreign.among("beta", {"kl_coef", "clip"}) == "kl_coef"
    assert foreign.elsewhere("no_such_name") is None
