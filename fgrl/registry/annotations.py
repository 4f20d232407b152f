"""Reading type annotations: their parts, and the words for them in messages."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fgrl.base.references import Product, Ref
from fgrl.registry.names import kind_of
from fgrl.registry.settings import ByDevice, Component, File, FolderOrName, Settings

M = TypeVar("M")

WORDS: dict[Any, str] = {int: "int", float: "float", str: "str", bool: "bool", type(None): "null", Any: "anything"}
SIGNS = {
    "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "multiple_of": "a multiple of",
    "min_length": "length >=", "max_length": "length <=",
}  # fmt: skip
"""Bounds of a field: pydantic's names and the words for them."""


def marker(metadata: Sequence[Any], kind: type[M]) -> Any:
    """Return the marker of a kind (`Unkeyed`, `File`; the class, a subclass or an instance) among a field's metadata;
    None if there is none.
    """
    return next((item for item in metadata if isinstance(item, kind) or _derives(item, kind)), None)


def _derives(item: Any, kind: type) -> bool:
    return isinstance(item, type) and issubclass(item, kind)


def marker_of(annotation: Any, kind: type[M]) -> Any:
    """Return the first marker of a kind on the alternatives of an annotation."""
    return next((found for _, metadata in members(annotation) if (found := marker(metadata, kind)) is not None), None)


def members(annotation: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the alternatives of a union, each with its metadata; the annotation itself if it is not a union."""
    inner, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if get_origin(inner) in (Union, types.UnionType):
        return [(member, (*metadata, *more)) for part in get_args(inner) for member, more in members(part)]
    return [(inner, tuple(metadata))]


def allows_null(annotation: Any) -> bool:
    """Return True if null is a value of the annotation."""
    return any(inner is type(None) or inner is Any for inner, _ in members(annotation))


def is_settings(annotation: Any) -> TypeGuard[type[Settings]]:
    """Return True for a class of settings."""
    return _derives(annotation, Settings)


def is_component(annotation: Any) -> TypeGuard[type[Component]]:
    """Return True for a class of components."""
    return _derives(annotation, Component)


def is_ref(annotation: Any) -> bool:
    """Return True for a reference to a stage."""
    return annotation is Ref or get_origin(annotation) is Ref


def product_of(annotation: Any) -> type[Product]:
    """Return the product of a reference: Checkpoint for `Ref[Checkpoint]`."""
    product: type[Product] = (get_args(annotation) or (Product,))[0]
    return product


def item_type(annotation: Any) -> Any | None:
    """Return X of `list[X]`, `tuple[X, ...]`, `Sequence[X]`; None for anything else."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return arguments[0]
    return arguments[0] if isinstance(origin, type) and issubclass(origin, list | set | frozenset) else None


def value_type(annotation: Any) -> Any | None:
    """Return X of `dict[str, X]` and `Mapping[str, X]`; None for anything else."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    return arguments[1] if isinstance(origin, type) and issubclass(origin, Mapping) and arguments else None


def contents(annotation: Any) -> Any | None:
    """Return the type of the items or values of a container; None for anything else."""
    return next((item for option, _ in members(annotation) if (item := value_type(option) or item_type(option))), None)


def parts(annotation: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield every alternative of an annotation, and of the items of its lists and mappings, with its metadata."""
    for option, metadata in members(annotation):
        yield option, metadata
        if (item := contents(option)) is not None:
            yield from parts(item)


def needs_building(annotation: Any) -> bool:
    """Return True if the annotation contains a component, settings, a reference or a file."""
    return any(marker(more, File) or is_settings(option) or is_ref(option) for option, more in parts(annotation))


def full(field: FieldInfo) -> Any:
    """Return a field's annotation with the markers that pydantic removed from it."""
    annotation: Any = field.annotation
    for kind in (File, FolderOrName, ByDevice):
        if (found := marker(field.metadata, kind)) is not None:
            annotation = Annotated[annotation, found]
    return annotation


def wanted(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Return the words for the value that a user must write: `int or null`, `one of mean, last`, `segmenter`, `list of
    str`.
    """
    words = list(dict.fromkeys(_words(annotation, metadata)))
    if "null" in words:  # last, as people say it
        words = [word for word in words if word != "null"] + ["null"]
    return " or ".join(words) or "anything"


def _words(annotation: Any, metadata: Sequence[Any]) -> Iterator[str]:
    for inner, more in members(annotation):
        if inner in WORDS:
            file = marker([*metadata, *more], File)
            yield file.word if inner is str and file is not None else WORDS[inner]
        elif get_origin(inner) is Literal:
            options = [shown(option) if not isinstance(option, str) else option for option in get_args(inner)]
            yield options[0] if len(options) == 1 else "one of " + ", ".join(options)
        elif is_ref(inner):
            yield f"${{out:stage}} of a stage that makes {product_of(inner).__name__}"
        elif is_component(inner):
            yield kind_of(inner) or inner.__name__
        elif is_settings(inner):
            required = [name for name, field in inner.model_fields.items() if field.is_required()]
            yield f"{inner.__name__} " + ("{" + ", ".join(f"{name}: ..." for name in required) + "}")
        elif (item := item_type(inner)) is not None:
            yield f"list of {wanted(item)}"
        elif (value := value_type(inner)) is not None:
            yield f"mapping of {wanted(value)}"
        else:
            yield getattr(inner, "__name__", None) or str(inner)


def shown(value: Any) -> str:
    """Return a value as YAML writes it, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= 60 else text[:56] + " ..." + ('"' if isinstance(value, str) else "")


def described(value: Any) -> str:
    """Return a value with its type, for "wants int, got ...": `float 1.5`, `str "no"`, `null`, `a list`, `a
    mapping`.
    """
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    return f"{WORDS.get(type(value), type(value).__name__)} {shown(value)}"
