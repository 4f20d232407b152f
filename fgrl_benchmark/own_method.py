"""A method of your own: a Python file with a component, or a recipe that extends one of the benchmark's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fgrl import OfflineAlgorithm, OnlineAlgorithm, Reward, RewardWrapper, TurnRelative, UsageError
from fgrl.base.files import expanded, sha256_of_file
from fgrl.experiments import recipe as recipes
from fgrl.experiments.pipeline.trial import tried_components
from fgrl.experiments.recipe.files import read as read_recipe
from fgrl.registry import Problems, name_of, unknown
from fgrl_benchmark import benchmark
from fgrl_benchmark.worlds import TURNS, WORDS, World

RANKED = (Reward, OnlineAlgorithm, OfflineAlgorithm)
"""Kinds of components that make a method by themselves."""
START = 'vars.start="start/model"'
"""Placeholder of the model in a recipe, before there is a model to start from."""
BETAS = [0.1, 1.0]
"""Values that are tried besides the learning rate for a loss that has a `beta`; for other methods, the KL weight is
tuned.
"""


@dataclass(frozen=True)
class Method:
    """A method in the ranking."""

    name: str
    told: str
    """Information that it knows besides prompt and answer."""
    about: str
    address: recipes.Address
    """Address of its recipe."""
    world: World
    knob: Mapping[str, Sequence[Any]]
    """Setting to tune besides the learning rate, with two values; empty for the benchmark's own choice."""
    rates: Sequence[float]
    """Learning rates to try; empty for those of the benchmark."""
    overrides: Mapping[str, Any]
    """Settings that it always has."""

    @property
    def entry(self) -> dict[str, Any]:
        """Return its entry in a file of methods."""
        found: dict[str, Any] = {"told": self.told, "recipe": str(self.address), "overrides": dict(self.overrides)}
        return (
            found | ({"knob": dict(self.knob)} if self.knob else {}) | ({"rates": [*self.rates]} if self.rates else {})
        )

    @property
    def folder(self) -> Path:
        """The folder in which its lines are written."""
        return Path.cwd() if _is_ours(self.address.file) else self.address.file.parent

    def plan(self, phase: str) -> dict[str, Any]:
        """Return a phase of the benchmark with this method."""
        return self.world.plan(phase, {self.name: self.entry})

    def files(self) -> dict[str, str]:
        """Return the digest of each file that makes the method, by its path from the folder of the recipe."""
        sources = recipes.load(str(self.address), [START]).sources
        own = {file: digest for file, digest in sources.items() if not _is_ours(file)}
        own[self.address.file] = sha256_of_file(self.address.file)
        return {os.path.relpath(file, self.address.file.parent): digest for file, digest in sorted(own.items())}


def bring(
    word: str, *, name: str | None = None, told: str = "outcome", knob: str = "", turns: bool = False, overrides: Sequence[str] = ()
) -> Method:  # fmt: skip
    """Return the method of a Python file or of a recipe. For a Python file a recipe is written beside it. name: name of
    the method; for a Python file with several components, the name of one of them. knob: `NAME=VALUE,VALUE`. turns:
    True if a Python file is about conversations. overrides: `a.b=value`. Raises `UsageError`, and `Problems` of a
    recipe.
    """
    given = recipes.Address.parse(word)
    file = expanded(given.file)
    if not file.is_file():
        raise UsageError(
            f"{given.file}: no such file; a method is a Python file, or a recipe (FILE.yaml, FILE.yaml::ROW)"
        )
    file = file.resolve()
    if file.suffix == ".py":
        cls = component(file, name)
        name = new_name(name_of(cls)[1])
        given = recipes.Address(write_recipe(file, cls, turns=turns))
    else:
        given = recipes.Address(file, given.row)
        name = new_name(name or given.row or file.stem)
    world = world_of(given)
    loaded = recipes.load(str(given), [*overrides, START])
    offline = loaded.data["stages"]["policy"]["name"] != "rl"
    return Method(
        name, told, loaded.about, given, world, chosen_knob(knob, loaded, world),
        world.methods["sft"]["rates"] if offline else [], dict(map(parsed, overrides)),
    )  # fmt: skip


def new_name(name: str) -> str:
    """Return the name of a method if it is allowed. Raises `UsageError`."""
    if name in {**WORDS.methods, **TURNS.methods}:
        raise UsageError(f"{name} is a method of the benchmark: choose another name for yours (--name for a recipe)")
    if not name.replace("-", "_").isidentifier():
        raise UsageError(f'"{name}" cannot be the name of a method: use letters, digits and _ with --name')
    return name


def component(file: Path, name: str | None) -> type[Any]:
    """Return the component of a file that is to be ranked. Raises `UsageError` if it is not clear which one."""
    found = {name_of(cls)[1]: cls for cls in tried_components(file) if issubclass(cls, RANKED)}
    if name is not None and name not in found:
        raise UsageError(unknown("component", name, sorted(found)))
    if not found:
        raise UsageError(
            f"{file.name}: it has no reward and no algorithm; with anything else write a recipe that begins with "
            f"`extends: fgrl_benchmark:{WORDS.recipe}`, and rank that"
        )
    if name is None and len(found) > 1:
        raise UsageError(f"{file.name} has {', '.join(sorted(found))}: choose one with --name")
    return found[name or next(iter(found))]


def write_recipe(file: Path, cls: type[Any], *, turns: bool) -> Path:
    """Write the recipe of a component beside its file, and return it. Raises `UsageError` if there is another
    recipe.
    """
    name = name_of(cls)[1]
    turns = turns or issubclass(cls, TurnRelative)
    text = "\n".join([
        f"about: {json.dumps((cls.__doc__ or name).strip().splitlines()[0])}",
        f"extends: fgrl_benchmark:{f'{WORDS.recipe}::offline' if issubclass(cls, OfflineAlgorithm) else (TURNS if turns else WORDS).recipe}",
        f"imports: [{file.name}]", "stages:", "  policy:",
        *(f"    {key}: {value}" for key, value in settings_of(cls, name, turns=turns).items()), "",
    ])  # fmt: skip
    path = file.with_name(f"{name}.yaml")
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UsageError(
            f"{path.name} is there, and is not the recipe that would be written for {file.name}: rank it as it is "
            f"(fgrl benchmark {path.name}), or delete it"
        )
    path.write_text(text, encoding="utf-8")
    return path


def settings_of(cls: type[Any], name: str, *, turns: bool) -> dict[str, str]:
    """Return the settings of the policy's stage that the recipe of a component changes: all others are those of the
    other methods.
    """
    if issubclass(cls, RewardWrapper):
        inner = "environment" if turns else '"${vars.scalar}"'
        found = {"reward": f"{{name: {name}, reward: {inner}}}"}
    elif issubclass(cls, Reward):
        found = {"reward": f"{{name: {name}}}"}
    else:
        scalar = {} if issubclass(cls, OfflineAlgorithm) else {"reward": "environment" if turns else "{credit: even}"}
        given = {} if turns else {"aggregate": "token_mean", "kl_coef": '"${vars.kl}"'}
        fields = "".join(f", {key}: {value}" for key, value in given.items() if key in cls.model_fields)
        return scalar | {"algorithm": f"{{name: {name}{fields}}}"}
    return found | ({"algorithm": "{name: turn_rloo}"} if turns else {})


def world_of(address: recipes.Address) -> World:
    """Return the world of a recipe. Raises `UsageError` if it extends no recipe of a world."""
    merged, _, problems = read_recipe(address)
    if merged is None:
        raise Problems(problems)
    variables = merged.get("vars")
    known = {} if variables is None else variables.children
    if "start" in known and not known.keys().isdisjoint({"scalar", "game"}):
        return WORDS if "scalar" in known else TURNS
    raise UsageError(
        f"{address.name} has no task of the benchmark: a recipe that is ranked begins with `extends: fgrl_benchmark:{WORDS.recipe}`, "
        f"or with `extends: fgrl_benchmark:{TURNS.recipe}` for conversations"
    )


def chosen_knob(text: str, loaded: recipes.Recipe, world: World) -> dict[str, list[Any]]:
    """Return the setting to tune besides the learning rate; {} for the benchmark's own choice. Raises `UsageError`."""
    policy = loaded.stages["policy"]
    parts = {
        name: type(getattr(policy, name)).model_fields for name in ("reward", "algorithm") if hasattr(policy, name)
    }
    if not benchmark.read("plan.yaml")[world.tuning].get("knobs", True):
        if text:
            raise UsageError("--knob: over turns only learning rates are tuned; give other values as overrides")
        return {}
    if not text:
        algorithm = loaded.data["stages"]["policy"]["algorithm"]
        given = algorithm if isinstance(algorithm, dict) else {}
        if given.get("kl_coef") == loaded.data["vars"]["kl"]:
            return {}
        if isinstance(policy.algorithm, OfflineAlgorithm) and "beta" in parts["algorithm"]:  # type: ignore[attr-defined]
            return {"stages.policy.algorithm.beta": BETAS}
        raise UsageError(
            "there is nothing to tune beside the learning rate: name one number of the method with two values to try, as in "
            "--knob exponent=1,3"
        )
    name, equals, values = text.partition("=")
    tried = [yaml.load(each, Loader=benchmark.Numbers) for each in values.split(",")]
    where = [part for part, fields in parts.items() if name in fields]
    if not equals or len(tried) != 2 or tried[0] == tried[1] or not (where or "." in name):
        known = sorted({each for fields in parts.values() for each in fields})
        raise UsageError(
            f'--knob "{text}": wants NAME=VALUE,VALUE with two different values; names: {", ".join(known)}, or a.b.c'
        )
    return {f"stages.policy.{where[0]}.{name}" if where else name: tried}


def parsed(override: str) -> tuple[str, Any]:
    """Return the key and the value of `a.b=value`."""
    key, _, value = override.partition("=")
    return key, yaml.load(value, Loader=benchmark.Numbers)


def _is_ours(file: Path) -> bool:
    """Return True for a file of the benchmark itself, also if a method links to it; False for a submitted file."""
    path, here = file.resolve(), benchmark.HERE
    return not path.is_relative_to(here / "sent") and any(
        path.is_relative_to(folder) for folder in (here, (here / "methods").resolve())
    )
