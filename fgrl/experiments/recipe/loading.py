"""Conversion of a recipe's file into built stages, or into the list of every problem in it.

1. read the file and the files that it extends, 2. lay the overrides over it, 3. resolve `${...}`, 4. import its Python
files, 5. build the stages, 6. check the references between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import yaml

from fgrl import components, registry
from fgrl.base import files, lazy, native, sanitizing
from fgrl.base.files import sha256_of_code
from fgrl.experiments.recipe import graph, interpolation, merging
from fgrl.experiments.recipe.files import Address, chosen, read
from fgrl.experiments.recipe.top import Top
from fgrl.experiments.recipe.tracking import Tracking
from fgrl.kinds import Stage
from fgrl.registry import Context, Problem, Problems
from fgrl.registry.annotations import described, shown
from fgrl.registry.building import BARE
from fgrl.registry.context import FAILED
from fgrl.registry.explaining import leaves, nearby
from fgrl.registry.outside import forget_file, import_file, load_entry_points, used_by
from fgrl.registry.problems import Key, Place, alternatives, nearest
from fgrl.registry.settings import ByDevice
from fgrl.registry.tree import Tree, scalar
from fgrl.types import Ref

_STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_SECRET = "looks like a secret, by its name or by its form, and a recipe is copied into runs, reports and exports"
_INSTEAD = (
    "put it into an environment variable and the variable's name into the recipe (for example api_key_env: MY_KEY), and read it "
    'in your code with os.environ["MY_KEY"]\nif it is no secret, give the setting another name'
)
_by_recipes: set[Path] = set()


class Auto(NamedTuple):
    """Meaning of an `auto` of a recipe."""

    value: str
    dtype: native.DType
    why: str


@dataclass
class Recipe:
    """A valid recipe: every component built, every reference checked."""

    path: Path
    """File of the recipe."""
    row: str | None
    """Name of the row; None for the file's own recipe."""
    about: str
    seed: int
    data: dict[str, Any]
    """The recipe resolved to plain data: `about`, `seed`, `imports`, `vars`, `stages` in order of execution."""
    stages: dict[str, Stage]
    """Built stages, in order of execution: each after the stages that it needs, otherwise in the order of the recipe."""
    origins: dict[Key, Place]
    """Place where each value of `data` was written; `str()` of it is `file:line:column` or `command line`."""
    auto: dict[Key, Auto] = field(default_factory=dict)
    """Meaning of each `auto` of the stages; `data` has the values."""
    tracking: Tracking = field(default_factory=dict)
    """Destinations of metrics besides the run's own logs, by the tracker's name."""
    sources: dict[Path, str] = field(default_factory=dict)
    """Imported user files, and the files beside them that these import anywhere, with the sha256 of their content."""
    notes: list[str] = field(default_factory=list)
    """Remarks on values that are valid, but perhaps not intended, each with its place."""

    @property
    def address(self) -> str:
        """Name of the recipe in commands: `recipes/rtt_qwen3.yaml::aon`."""
        return str(Address(self.path, self.row))

    def to_yaml(self) -> str:
        """Return the resolved recipe as YAML. It loads to the same stages from anywhere, without its parents and
        variables.
        """
        data = {key: value for key, value in self.data.items() if key != "vars"}
        return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))

    def built_anew(self, stage: str) -> Stage:
        """Return a stage whose components share no object with another stage's. The imported files are run again too,
        so that their modules keep no state of an earlier stage.
        """
        for file in self.sources:
            forget_file(file)
        for imported_file in self.data.get("imports", ()):  # in its order, with the files that each of them imports
            import_file(Path(imported_file))
        return registry.build(Stage, deepcopy(self.data["stages"][stage]), path=("stages", stage))

    def graph(self) -> dict[str, list[str]]:
        """Return the stages that each stage needs, in order of execution."""
        needs = {}
        for name, stage in self.stages.items():
            used = {value.stage for _, value in registry.walk(stage) if isinstance(value, Ref)}
            needs[name] = [other for other in self.stages if other in used]
        return needs


@lazy.uncollected()
def load(path: Path | str, overrides: Iterable[str] = ()) -> Recipe:
    """Read, resolve, build and check a recipe (`FILE`, or `FILE::ROW`). Raises `Problems` with every mistake in it.

    overrides: `a.b=value`; `row=ROW` and `recipe=FILE` load another row or recipe instead.
    """
    know_components()
    address, overrides = chosen(Address.parse(path), list(overrides))
    merged, layers, problems = read(address)
    if merged is None:
        raise Problems(problems)
    merged, wrong = merging.override(merged, overrides)
    problems += wrong
    dropped = _drop_stages(merged)
    data, wrong = interpolation.resolve(merged)
    problems += wrong
    sanitizing.remember(data)
    problems += [Problem(path, _SECRET, _INSTEAD) for path in sanitizing.secrets_in(data)]
    reading = _Reading(merged, data, problems)
    data["imports"] = reading.imports(layers)
    top = reading.built()
    stages = reading.checked(top, dropped)
    if not problems or any("${vars." in problem.message for problem in wrong):
        problems += _unused_variables(layers, merged)
    if top is None or problems:
        placed = [reading.placed(problem) for problem in problems]
        once = {(problem.path, problem.message, problem.place): problem for problem in reversed(placed)}
        raise Problems([problem for problem in placed if problem is once[problem.path, problem.message, problem.place]])
    for name, stage in stages.items():
        for inside, part in [((), stage), *registry.walk(stage)]:
            if isinstance(part, registry.Settings):
                sanitizing.remember_variables(vars(part))  # also those that a component names by default
                said = [note.message for note in reading.context.notes]
                for remark in part.remarks():
                    if remark not in said:
                        reading.context.note(("stages", name, *inside), remark)
    if not reading.auto and data.get("dtype") in get_args(native.DType):
        reading.context.note(("dtype",), "changes nothing: no dtype and no precision of this recipe is auto")
    known = {key: data[key] for key in ("about", "seed", "dtype", "imports", "vars", "track") if data.get(key)}
    return Recipe(
        path=address.file,
        row=address.row,
        about=top.about,
        seed=top.seed,
        data={"about": top.about, "seed": top.seed, **known}
        | {"stages": {name: data["stages"][name] for name in stages}},
        stages=stages,
        origins={key: interpolation.origin(merged, key).place for key, _ in leaves(data)},
        auto=reading.auto,
        tracking=top.trackers,
        sources={file: sha256_of_code(file.read_bytes()) for file in sorted(_by_recipes)},
        notes=[str(reading.placed(note)) for note in reading.context.notes],
    )


def know_components() -> None:
    """Make the names of every component of fgrl known, and register the components of installed packages."""
    components.announce()
    load_entry_points()


@dataclass
class _Reading:
    """Steps of `load` that share the merged recipe."""

    tree: Tree
    data: dict[str, Any]
    problems: list[Problem]
    context: Context = field(init=False)
    auto: dict[Key, Auto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.context = Context(
            folder=lambda path: interpolation.origin(self.tree, path).place.folder,
            dropped=self._dropped,
            auto=self._resolved,
            problems=self.problems,
        )

    def problem(self, path: Key, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(path, message, hint))

    def imports(self, layers: Sequence[Tree]) -> list[str]:
        """Import the user files of all layers, parents first. Returns their absolute paths."""
        wanted: dict[Path, tuple[Key, Place]] = {}
        for layer in reversed(layers):
            tree = layer.get("imports")
            if tree is None or tree.value is FAILED:
                continue
            if not isinstance(tree.value, list):
                hint = f"write [{tree.value}]" if isinstance(tree.value, str) else None
                message = f"wants a list of files, got {described(tree.plain())}"
                self.problems.append(Problem(("imports",), message, hint, tree.place))
                continue
            for index, item in enumerate(tree.value):
                if item.value is FAILED:
                    continue
                if not isinstance(item.value, str) or not item.value.strip() or "\0" in item.value:
                    message = f"wants a file, got {described(item.plain())}"
                    self.problems.append(Problem(("imports", index), message, None, item.place))
                    continue
                file = item.place.folder / files.expanded(item.value)
                wanted.setdefault(file.resolve(), (("imports", index), item.place))
        for file in _by_recipes - set(wanted).union(*map(used_by, filter(files.is_file, wanted))):
            forget_file(file)
        _by_recipes.clear()
        for file, (path, place) in wanted.items():
            try:
                if not files.is_file(file):
                    near = nearest(file.name, [name for name in files.names_in(file.parent) if name.endswith(".py")])
                    hint = f'did you mean "{near}"?' if near else "a path is relative to the recipe that names it"
                    raise Problems([Problem(path, f"no such file: {nearby(file)}", hint, place)])
                import_file(file)
                _by_recipes.update({file}, used_by(file))
            except Problems as raised:
                for problem in raised.problems:
                    problem.place = problem.place or place
                    if problem.place is not place:
                        problem.hint = "\n".join(filter(None, (problem.hint, f"imported {place.in_words()}")))
                self.problems += raised.problems
        return [str(file) for file in wanted]

    def built(self) -> Top | None:
        """Return the recipe, or None if it has problems; the problems are in the context."""
        nodes = self._stages()
        self.context.stages = list(nodes)
        for name in nodes:
            if not _STAGE_NAME.fullmatch(name):
                wrong = f"{shown(name)} cannot be a stage's name; use at most 100 letters, digits, _ and -"
                self.problem(("stages", name), wrong)
        own = {key: self.data[key] for key in ("about", "seed", "dtype", "track", "stages") if key in self.data}
        try:
            top = registry.build(Top, own, context=self.context)
            return top if isinstance(top, Top) else None  # what has problems of its own already
        except Problems:
            return None
        finally:
            nodes.update({name: {"name": node} for name, node in nodes.items() if isinstance(node, str)})
            for key in [key for key, value in self.data.items() if value is None]:
                del self.data[key]  # it has its default again

    def _stages(self) -> dict[str, Any]:
        """Return the data of each stage."""
        nodes = self.data.get("stages")
        return nodes if isinstance(nodes, dict) else {}

    def checked(self, top: Top | None, dropped: dict[str, Place]) -> dict[str, Stage]:
        """Return the stages in order of execution; references that do not fit are problems."""
        classes = {name: self._class(name) for name in self._stages()}
        refs, wrong = graph.check(classes, dropped, self.context.refs)
        self.problems += wrong
        needs: graph.Graph = {
            name: list(dict.fromkeys(ref.ref.stage for ref in refs if ref.path[1] == name)) for name in classes
        }
        circle = graph.circle(needs, refs)
        self.problems += circle
        if top is None or circle:
            return {}
        stages = {name: top.stages[name] for name in graph.order(needs)}
        for name, stage in stages.items() if not self.problems else ():
            for path, message in stage.misfits(stages):
                self.problem(("stages", name, *path), message)
        return stages

    def _class(self, name: str) -> type[Stage] | None:
        node = self.data["stages"][name]
        named = node if isinstance(node, str) else node.get("name", node.get(BARE)) if isinstance(node, dict) else None
        if not isinstance(named, str) or named not in registry.names("stage"):
            return None
        cls = registry.get("stage", named)
        return cls if issubclass(cls, Stage) else None

    def placed(self, problem: Problem) -> Problem:
        """Return the problem with the place of the value, and of the variable that gave it."""
        if problem.place is None:
            tree, rest = self.tree.at(problem.path)
            problem.place = tree.place
            written = interpolation.origin(self.tree, problem.path)
            if (
                problem.written
                and isinstance(tree.value, str)
                and written is tree
                and (of := interpolation.alone(tree.value))
            ):
                written = interpolation.find(self.tree, of) or tree
            if problem.written and written is not tree:
                problem.path, problem.place = interpolation.alone(tree.value) or problem.path, written.place
                problem.hint = "\n".join(filter(None, (problem.hint, f"used {tree.place.in_words()}")))
            elif written is not tree:
                note = f"{tree.value} is set {written.place.in_words()}"
                problem.hint = "\n".join(filter(None, (problem.hint, note)))
            elif isinstance(tree.value, str) and not rest:
                notes = [
                    f"${{{'.'.join(map(str, name))}}} is set {source.place.in_words()}"
                    for name in interpolation.mentions(tree.value)
                    if (source := interpolation.find(self.tree, name)) is not None
                ]
                problem.hint = "\n".join(filter(None, (problem.hint, *notes))) or None
        return problem

    def _resolved(self, path: Key, values: ByDevice) -> str:
        """Return the meaning of `auto` at a path of the stages: by the recipe's `dtype`, else by the device of the
        stage.
        """
        cls = self._class(str(path[1]))
        settings = self.data["stages"][path[1]]
        accelerator, whole = ("auto", False) if cls is None else cls.computes(settings, path[2:])
        given = self.data.get("dtype")
        if given in get_args(native.DType):
            meant = native.Native(
                cast(native.DType, given), f"dtype, {interpolation.origin(self.tree, ('dtype',)).place}"
            )
        else:
            meant = native.here(accelerator)
        value = values.value(meant.dtype, whole=whole)
        self.auto[path] = Auto(value, meant.dtype, meant.why)
        return value

    def _dropped(self, path: Key) -> bool:
        tree, rest = interpolation.source(self.tree, path)
        return tree.dropped and not rest


def _drop_stages(recipe: Tree) -> dict[str, Place]:
    """Remove the stages that are set to null, and return their places."""
    stages = recipe.under("stages")
    dropped = {name: stage.place for name, stage in stages.items() if stage.dropped}
    for name in dropped:
        del stages[name]
    return dropped


def _unused_variables(layers: Sequence[Tree], merged: Tree) -> list[Problem]:
    """Return a problem for each variable that this recipe introduces and that is not used: most likely the misspelled
    name of another variable.
    """
    inherited = {name for layer in layers[1:] for name in layer.under("vars")}
    used = {
        path[:2]
        for tree in (*layers, merged)
        for _, leaf in tree.leaves()
        if isinstance(leaf.value, str)
        for path in interpolation.mentions(leaf.value)
    }
    return [
        Problem(
            ("vars", name),
            "nothing uses this variable",
            alternatives(name, sorted(inherited)) or f"remove it, or use it: ${{vars.{name}}}",
            tree.place,
        )
        for name, tree in layers[0].under("vars").items()
        if name not in inherited and not used & {("vars",), ("vars", name)}
    ]


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """YAML dumper that quotes text which fgrl's reader of YAML, or another reader, takes for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if isinstance(scalar(text), str) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
