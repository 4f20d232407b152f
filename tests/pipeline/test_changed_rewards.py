"""A reward whose files have changed since a stage was made is not taken for the one that the stage was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from function_helpers import component, write
from scratch_registry import scratch

from fgrl import registry
from fgrl.experiments.pipeline import changed_rewards, keys
from fgrl.kinds import Reward
from fgrl.registry import dump, outside, walk

SOURCE = "import helper\n\ndef score(completions):\n    return [helper.value for _ in completions]\n"


def as_recorded(reward: Reward) -> dict[str, Any]:
    """The identity of a stage with this reward among its `rewards`."""
    settings = dump(reward, for_key=True)
    for path, value in walk(reward):
        if isinstance(value, Path):
            keys._put(settings, path, {"sha256": keys.sha256(value)})
    return {"settings": {"rewards": {"own": settings}}}


@pytest.mark.parametrize("fields", [{"path": "rewards.py:score"}, {"paths": ["rewards.py:score"]}])
def test_the_files_that_changed_are_named(tmp_path: Path, fields: dict[str, Any]) -> None:
    write(tmp_path, SOURCE)
    write(tmp_path, "value = 1\n", "helper.py")
    record = as_recorded(component("reward", tmp_path, **fields))

    def changed() -> list[str]:
        return changed_rewards.changed_files(component("reward", tmp_path, **fields), record, ("rewards", "own"))

    assert changed() == []
    write(tmp_path, "value = 2\n", "helper.py")
    assert changed() == ["helper.py"]
    write(tmp_path, SOURCE + "\nmore = 1\n")
    assert sorted(changed()) == ["helper.py", "rewards.py"]
    assert "helper.py has changed since stage policy was made" in changed_rewards.warning("policy", ["helper.py"])


def test_of_a_record_that_says_nothing_nothing_is_claimed(tmp_path: Path) -> None:
    write(tmp_path, SOURCE)
    write(tmp_path, "value = 1\n", "helper.py")
    reward = component("reward", tmp_path, path="rewards.py:score")
    assert changed_rewards.changed_files(reward, {}, ("reward",)) == []


REWARD = """
from fgrl.kinds import Reward
from fgrl.registry import register
from parts import worth

@register("own_reward_{number}")
class Own(Reward):
    "A reward of an imported file."

    def score(self, rollout):
        raise NotImplementedError(worth)
"""


def test_imported_files_that_changed_are_named(tmp_path: Path) -> None:
    """The files of a recipe's `imports`, and the files beside them that they import."""

    def built(number: int) -> Reward:
        write(tmp_path, REWARD.replace("{number}", str(number)), "own.py")
        outside.import_file(tmp_path / "own.py")
        return registry.build(Reward, f"own_reward_{number}")

    with scratch():
        write(tmp_path, "worth = 1\n", "parts.py")
        write(tmp_path, "worth = 1\n", "unused.py")
        first = built(0)
        sources = {file: digest for file, digest in outside.imported().items() if file.parent == tmp_path.resolve()}
        assert {file.name for file in sources} == {"own.py", "parts.py"}
        recorded = {str(place): digest for place, digest in enumerate(sorted(sources.values()))}
        record = {"settings": {"reward": {}}, "sources": recorded}
        assert changed_rewards.changed_files(first, record, ("reward",)) == []
        write(tmp_path, "worth = 2\n", "parts.py")
        write(tmp_path, "worth = 2\n", "unused.py")
        assert changed_rewards.changed_files(built(0), record, ("reward",)) == ["parts.py"]
        assert changed_rewards.changed_files(built(1), record, ("reward",)) == ["own.py", "parts.py"]
        assert changed_rewards.changed_files(built(2), {}, ("reward",)) == []
        last = built(3)
        (tmp_path / "parts.py").unlink()
        outside.forget_file((tmp_path / "parts.py").resolve())
        assert changed_rewards.changed_files(last, record, ("reward",)) == ["own.py", "parts.py"]
