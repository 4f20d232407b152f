"""Conversion of plain data into a typed component; all problems are collected.

The builder follows the annotations: a field that holds a component, settings, a reference or a file is built here, so
that its mistakes are reported in a recipe's words; pydantic then checks the other fields and the cross-field rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar, cast, get_origin

from pydantic import ValidationError

from fgrl.base import files, foreign
from fgrl.base.references import Ref
from fgrl.registry import explaining
from fgrl.registry.annotations import (
    allows_null,
    contents,
    described,
    full,
    is_component,
    is_ref,
    is_settings,
    item_type,
    marker_of,
    members,
    needs_building,
    product_of,
    shown,
    value_type,
    wanted,
)
from fgrl.registry.context import FAILED, Context, PlacedRef
from fgrl.registry.names import NotRegistered, get, kind_of, kinds, name_of, names
from fgrl.registry.outside import unnamed
from fgrl.registry.problems import Key, Problems, alternatives, nearest
from fgrl.registry.settings import AUTO, ByDevice, Component, File, FolderOrName, Settings, names_folder

S = TypeVar("S", bound=Settings)

BARE = "="
"""Key under which a recipe's merging keeps the bare string that a mapping was merged onto: `segmenter: entropy` and
then `segmenter.cutoff=2` is `{"=": "entropy", "cutoff": 2}`. Only the builder knows what a bare string stands for.
"""


def build(what: type[S] | str, node: Any, *, path: Key = (), context: Context | None = None) -> S:
    """Return a component (by kind or the kind's name) or settings from plain data.

    `node` is data from YAML or JSON: a name, or a mapping with `name` and fields. Raises `Problems` with every mistake
    in it. `context` is for recipes: it collects problems and references over several calls. The builder writes absolute
    file paths back into `node`.
    """
    context = context or Context()
    before = len(context.problems)
    slot = cast(type[S], kinds()[what]) if isinstance(what, str) else what
    value = _value(slot, node, path, context)
    if len(context.problems) > before:
        raise Problems(context.problems[before:])
    return cast(S, value)


def accepts_bare(cls: type[Settings]) -> list[Callable[[Any], Any]]:
    """Return the validators of settings that may turn something else into a mapping (`ModelSpec` takes a bare
    string).
    """
    decorators = cls.__pydantic_decorators__.model_validators
    return [getattr(cls, name) for name, decorator in decorators.items() if decorator.info.mode == "before"]


def _value(annotation: Any, node: Any, path: Key, context: Context) -> Any:
    """Return a node built as its annotation requires; a value that needs no building is returned unchanged."""
    if isinstance(node, Settings | Ref) or node is FAILED:
        return node
    options = members(annotation)
    text = f"{{{next(iter(node), '')}}}" if isinstance(node, dict) else node  # without quotes, braces are a mapping
    if isinstance(text, str) and text.startswith("{out:") and text[5:-1] in context.stages:
        return context.problem(path, f"{text} is no reference to a stage: it has no $", f'write "${text}", in quotes')
    if isinstance(node, str):
        if "${out:" in node:
            return _reference(options, node, path, context)
        if (file := marker_of(annotation, File)) is not None:
            return _file(node, file, path, context)
        if node == AUTO and (by_device := marker_of(annotation, ByDevice)) is not None:
            return context.auto(path, by_device)
        refers = any(is_ref(inner) for inner, _ in options)
        if refers and node in context.stages:
            also = f"; a folder of that name is ./{node}" if any(inner is str for inner, _ in options) else ""
            return context.problem(path, f'"{node}" is a stage of this recipe', f"write ${{out:{node}}}{also}")
        if (folder := marker_of(annotation, FolderOrName)) is not None:
            return _folder_or_name(node, folder, path, context)
        if any(inner is str or inner is Any for inner, _ in options):
            return node
        if refers and not any(is_settings(inner) for inner, _ in options):
            return context.problem(path, f"wants {wanted(annotation)}, got {described(node)}")
    if node is None and allows_null(annotation):
        return None
    builders = [builder for inner, _ in options if (builder := _builder(inner, node)) is not None]
    if builders:
        return _best(builders, node, path, context)
    slots = [inner for inner, _ in options if is_settings(inner)]
    if slots and not any(item_type(inner) or value_type(inner) for inner, _ in options):
        return _unfit(slots[0], annotation, node, path, context)
    return _loose(annotation, node, path, context)


def _builder(annotation: Any, node: Any) -> Callable[..., Any] | None:
    """Return the function that builds a node as this alternative; None if the node cannot be meant for it."""
    if is_component(annotation):
        return partial(_component, annotation) if isinstance(node, str | dict) else None
    if is_settings(annotation):
        bare = isinstance(node, str) and accepts_bare(annotation)
        return partial(_bare_settings, annotation) if bare or isinstance(node, dict) else None
    container = list if item_type(annotation) is not None else dict
    return partial(_items, annotation) if needs_building(annotation) and isinstance(node, container) else None


def _best(builders: list[Callable[..., Any]], node: Any, path: Key, context: Context) -> Any:
    """Try every alternative. Return the result of the first without problems, else of the alternative with the fewest
    problems.
    """
    tries = []
    for builder in builders:
        trial = replace(context, problems=[], refs=[], notes=[])
        tries.append((builder(node, path, trial), trial))
    value, best = min(tries, key=lambda pair: len(pair[1].problems))
    context.problems += best.problems
    context.refs += best.refs
    context.notes += best.notes
    return value


def _items(annotation: Any, node: list[Any] | dict[str, Any], path: Key, context: Context) -> Any:
    keys: Iterable[Any] = range(len(node)) if isinstance(node, list) else list(node)
    built = _parts(dict.fromkeys(keys, contents(annotation)), node, path, context)
    if any(value is FAILED for value in built.values()):
        return FAILED
    if isinstance(node, dict):
        return built
    return tuple(built.values()) if get_origin(annotation) is tuple else [*built.values()]


def _parts(annotations: dict[Any, Any], node: Any, path: Key, context: Context) -> dict[Any, Any]:
    """Return the built parts of a node; parts that a null drops are removed from the node."""
    built: dict[Any, Any] = {}
    for key, annotation in annotations.items():
        before, at = node[key], (*path, key)
        if before is None and isinstance(node, dict) and not allows_null(annotation) and context.dropped(at):
            del node[key]
        else:
            built[key] = _value(annotation, before, at, context)
            node[key] = _as_data(before, built[key])
    return built


def _reference(options: list[tuple[Any, tuple[Any, ...]]], node: str, path: Key, context: Context) -> Any:
    """Return the `Ref` for `${out:stage}`, if the slot takes a reference."""
    ref: Ref[Any] | None = Ref.parse(node)
    if ref is None or "${out:" in ref.stage:
        return context.problem(path, f"{shown(node)}: ${{out:stage}} stands alone, it cannot be part of a text")
    products = tuple(product_of(inner) for inner, _ in options if is_ref(inner))
    if products:
        context.refs.append(PlacedRef(path, ref, products))
        return ref
    for inner, _ in options:  # a ModelSpec takes a bare reference for its `base`
        if is_settings(inner) and not is_component(inner) and accepts_bare(inner):
            return _bare_settings(inner, node, path, context)
    words = " or ".join(dict.fromkeys(wanted(inner, metadata) for inner, metadata in options))
    return context.problem(path, f"no place for a reference to a stage: wants {words}, got {node}")


def _file(node: str, marker: type[File], path: Key, context: Context) -> Any:
    """Return a path, made absolute. It is a problem if the file does not exist, if a folder is wanted and there is
    none, or if the marker finds a problem inside the file.
    """
    text, rest = marker.parts(node)
    given = files.expanded(text)
    target = context.folder(path) / given
    if not text.strip() or "\0" in node:
        return context.problem(path, f"wants a {marker.word}, got {described(node)}")
    if not files.exists(target):
        near = nearest(given.name, files.names_in(target.parent))
        meant = f'did you mean "{given.with_name(near)}{rest}"?' if near else None
        hint = meant or "a path is relative to the recipe that names it"
        return context.problem(path, f"no such file: {explaining.nearby(target)}", hint, written=True)
    if not (files.is_folder(target) if marker.word == "folder" else files.is_file(target)):
        what = "a folder" if files.is_folder(target) else "a file" if files.is_file(target) else "a device or a pipe"
        return context.problem(path, f"wants a {marker.word}, and {shown(node)} is {what}")
    value = f"{target.resolve()}{rest}"
    if inside := marker.problems(value):
        context.problems += [replace(problem, path=path) for problem in inside]
        return FAILED
    return value


def _folder_or_name(node: str, marker: FolderOrName, path: Key, context: Context) -> Any:
    """Return the absolute path of a folder that exists beside the recipe; any other name unchanged.

    It is a problem if the name can only be a folder, or if such a folder exists only in the current directory: the
    libraries that load models and data would take it, and the meaning of a recipe would depend on the directory in
    which it is run.
    """
    if not node.strip() or "://" in node or node in marker.names:
        return node
    folder, given = context.folder(path), files.expanded(node)
    if files.is_folder(folder / given):
        return str((folder / given).resolve())
    parent = (folder / given).parent
    if files.is_file(folder / given) and (names_folder(node) or given.suffix):
        return context.problem(
            path, f"{node} is a file, and a folder is wanted", "name the folder, or a hub id (owner/name)"
        )
    near = nearest(given.name, [name for name in files.names_in(parent) if files.is_folder(parent / name)])
    before, slash, _last = node.rstrip("/").rpartition("/")
    hint = f'did you mean "{before if slash else "."}/{near}"?' if near else None
    if names_folder(node):
        also = "a folder is relative to the recipe that names it; a hub id looks like owner/name"
        return context.problem(path, f"no such folder: {node}", hint or also, written=True)
    if files.is_folder(given):
        message = f"there is no folder {node} beside the recipe, but the current directory has one"
        return context.problem(path, message, f"write {Path(os.path.relpath(given, folder)).as_posix()}")
    if hint:
        context.note(path, f'"{node}" is read as a hub id, since there is no such folder', hint)
    return node


def _as_data(before: Any, value: Any) -> Any:
    """Return the data for a value that was built from it: paths that were made absolute replace the original texts."""
    if not isinstance(before, str):
        return before
    if isinstance(value, str):
        return value
    if isinstance(value, Settings) and not isinstance(value, Component):  # of a bare text
        fields = {name: getattr(value, name) for name in sorted(value.model_fields_set)}
        if any(isinstance(field, str) and field != before for field in fields.values()):
            return fields
    return before


def _unfit(slot: type[Settings], annotation: Any, node: Any, path: Key, context: Context) -> Any:
    """Report a value that can be neither a component nor settings."""
    before = "leave out the dashes or brackets of the list  " if isinstance(node, list) else ""
    if node is True and not any(field.is_required() for field in slot.model_fields.values()):
        before = "write {}, for the defaults  "
    first = next(iter(slot.model_fields), "")
    if type(node) is int and first and slot.model_fields[first].annotation is int:
        before = f"write {{{first}: {node}}}  "
    words = explaining.a(wanted(annotation)) if is_component(slot) else wanted(annotation)
    choices = explaining.choices(None, slot) if is_component(slot) else alternatives(None, list(slot.model_fields))
    return context.problem(path, f"wants {words}, got {described(node)}", before + choices)


def _loose(annotation: Any, node: Any, path: Key, context: Context) -> Any:
    """Return a value that pydantic checks; only stray references inside it are reported here."""
    if explaining.holds(node, FAILED):
        return FAILED
    if isinstance(node, list) and any(value_type(inner) for inner, _ in members(annotation)):
        words = wanted(annotation)
        return context.problem(path, f"wants {words}, got {described(node)}", explaining.quoted(node, words))
    for at, leaf in explaining.leaves(node, path):
        if isinstance(leaf, str) and "${out:" in leaf:
            return context.problem(at, f"no place for a reference to a stage: {leaf}")
    if isinstance(node, dict) and BARE in node:
        key = next(key for key in node if key != BARE)
        return context.problem((*path, key), f"{shown(node[BARE])} has no keys to set; wants {wanted(annotation)}")
    takes_tuple = any(inner is tuple or get_origin(inner) is tuple for inner, _ in members(annotation))
    return tuple(node) if isinstance(node, list) and takes_tuple else node


def _component(slot: type[Component], node: str | dict[str, Any], path: Key, context: Context) -> Any:
    kind = kind_of(slot)
    if kind is None:
        raise TypeError(f"{slot.__name__} is of no kind; declare one with @kind(...)")
    at = path if isinstance(node, str) else (*path, "name")
    node = _unfolded(node, lambda bare: {"name": bare})
    if "name" not in node:
        with suppress(NotRegistered):  # a slot for one component alone
            node["name"], at = name_of(slot)[1], path
    if "name" not in node:
        if named := next((key for key in node if key in names(kind)), None):
            return context.problem((*path, named), "has no name", f'did you mean "name: {named}"?')
        if typo := next((key for key in node if foreign.among(key, ["name"])), nearest("name", node)):
            meant = f"name: {node[typo]}" if isinstance(node[typo], str) else "name"
            return context.problem((*path, typo), f'unknown key "{typo}"', f'did you mean "{meant}"?')
        return context.problem(
            path, f"has no name; wants {explaining.a(kind)}: {{name: ...}}", explaining.choices(None, slot)
        )
    name = node["name"]
    if name is FAILED:
        return FAILED
    if not isinstance(name, str):
        wrong = f"wants the name of {explaining.a(kind)}, got {described(name)}"
        return context.problem(at, wrong, explaining.choices(None, slot))
    if name not in names(kind) or not issubclass(get(kind, name), slot):
        elsewhere = next((other for other in kinds() if other != kind and name in names(other)), None)
        note = f'; "{name}" is {explaining.a(elsewhere)}' if elsewhere else ""
        hint = explaining.choices(None if elsewhere else name, slot)
        if not elsewhere and (own := unnamed(slot, name)):
            hint = f'is it {own}? then write @register("{name}") above it  {hint}'
        elif name.partition(":")[0].endswith(".py") and "function" in names(kind):
            hint = f'write {{name: function, path: "{name}"}}  {hint}'
        elif elsewhere and (stages := explaining.stages_with(elsewhere)):
            hint = f"write it in a stage of the name {' or '.join(stages)}  {hint}"
        return context.problem(at, f'unknown {kind} "{name}"{note}', hint)
    cls = get(kind, name)
    version = node.get("version", cls.version)
    if version is FAILED:
        return FAILED
    if version != cls.version or isinstance(version, bool):
        wrong = f'wants version {shown(version)} of {kind} "{name}", this is version {cls.version}'
        return context.problem((*path, "version"), wrong)
    outer, context.component = context.component, (path, name)
    try:
        return _settings(cls, node, path, context, own=("name", "version"))
    finally:
        context.component = outer


def _unfolded(node: Any, reading: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the mapping that a bare value stands for; inside a mapping, the bare value is replaced in place."""
    if not isinstance(node, dict):
        meant: dict[str, Any] = reading(node)
        return meant
    if BARE in node:
        bare = node.pop(BARE)  # FAILED has its own problem
        merged = _over(bare if isinstance(bare, dict) else {} if bare is FAILED else reading(bare), dict(node))
        node.clear()
        node.update(merged)
    return node


def _over(below: Any, above: Any) -> Any:
    """Return `above` laid over `below`: mappings merge deeply, unless the name of a component changes."""
    if not (isinstance(below, dict) and isinstance(above, dict)) or BARE in above:
        return above
    if "name" in above and above["name"] != below.get("name"):
        return above
    return below | {key: _over(below.get(key), value) for key, value in above.items()}


def _bare_settings(cls: type[Settings], node: Any, path: Key, context: Context) -> Any:
    def reading(value: Any) -> Any:
        return reduce(lambda read, validator: validator(read), accepts_bare(cls), value)

    bare = node.get(BARE, {}) if isinstance(node, dict) else node
    if not isinstance(bare, dict) and bare is not FAILED and not isinstance(reading(bare), dict):
        return _unfit(cls, cls, bare, path, context)
    return _settings(cls, _unfolded(node, reading), path, context)


def _settings(cls: type[Settings], node: dict[str, Any], path: Key, context: Context, own: Collection[str] = ()) -> Any:
    """Build the fields (every key except the `own` keys), let pydantic check the others, and explain the errors."""
    before = len(context.problems)
    fields = {key: value for key, value in node.items() if key not in own}
    guessed = explaining.unknown_keys(cls, fields, path, context)
    slots = {key: full(info) for key, info in cls.model_fields.items() if key in fields}
    ready = _parts(slots, node, path, context)
    failed = {key for key, value in ready.items() if value is FAILED}
    # With a placeholder in place of a failed child a validator may stumble in any way; only what pydantic reports about
    # the other fields is of use.
    stumbles = (AttributeError, TypeError, KeyError, IndexError, ArithmeticError) if failed else ()
    try:
        with suppress(*stumbles):
            built = cls.model_validate(ready)
    except ValidationError as error:
        explaining.explain(cls, error, fields, path, context, known=failed | guessed)
    return built if not failed and len(context.problems) == before else FAILED
