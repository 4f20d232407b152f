"""Search for the reward that a person names on the command line: the reward of a stage, a reward model, or a
component.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from fgrl import registry
from fgrl.base.console import Console
from fgrl.base.errors import UsageError
from fgrl.experiments import recipe as recipes
from fgrl.experiments.pipeline import changed_rewards
from fgrl.kinds import Reward
from fgrl.library import words


def reward(word: str, runs: Path, overrides: Sequence[str] = ()) -> tuple[Reward, dict[str, Path]]:
    """Return the reward that a word names, not set up, and the products of the stages that it refers to.

    For a stage that has a reward (RECIPE:STAGE, its folder, a recipe with one such stage), the result is that reward.
    For a stage that trained a reward model, it is that model, read as `segment_rm` reads it. Any other word is a
    component: its name, or `{name: ..., ...}`. A line on stderr names files of a stage's reward that have changed
    since. Raises `UsageError` for any other word, `Problems` of a component.
    """
    recipes.know_components()
    if word.lstrip().startswith("{") or word in registry.names("reward"):
        try:
            return registry.build(Reward, yaml.safe_load(word)), {}
        except yaml.YAMLError as error:
            raise UsageError(f"--reward {word}: not a mapping in YAML: {error}") from None
    if not words.names_a_stage(word, runs):
        known = ", ".join(registry.names("reward"))
        raise UsageError(
            f"--reward {word}: no such stage, run or recipe, and no reward of this name; rewards: {known} (fgrl list reward)"
        )
    named = words.stage(word, runs, overrides)
    if settings := named.settings.get("reward"):
        built = registry.build(Reward, settings)
        if changed := changed_rewards.changed_files(built, named.record.identity, ("reward",)):
            Console().alert(changed_rewards.warning(named.name, changed))
        return built, named.upstream()
    if named.is_model and named.head == "scalar":
        model = {"name": "segment_rm", "model": f"${{out:{named.name}}}"}
        return registry.build(Reward, model), {named.name: named.out}
    raise UsageError(f"--reward {word}: stage {named.name} has no reward, and it trained no reward model")
