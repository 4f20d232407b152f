"""Conversion of YAML into a tree in which every value knows the place where it was written.

YAML 1.2's core: `5e-7` is a number, `no` and `2024-01-01` are text. Tags, merge keys (`<<`), keys that are not text and
duplicate keys are problems.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from fgrl.registry.context import FAILED
from fgrl.registry.problems import Key, Place, Problem

Scalar = str | int | float | bool | None

COMMAND_LINE = 1_000_000
"""Rank of places on the command line: after every file."""
TOO_LONG = 250_000
"""Maximum number of bytes of a recipe's file."""
TOO_DEEP = 40
"""Maximum depth of lists and mappings inside each other."""

_SCALARS: list[tuple[re.Pattern[str], Callable[[str], Scalar]]] = [
    (re.compile(r"|~|null|Null|NULL"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]{1,4000}"), int),
    (re.compile(r"0o[0-7]{1,4000}"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]{1,4000}"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", "", 1))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
]
"""Patterns of plain scalars that are not text, and the function that reads each."""


@dataclass
class Tree:
    """A value with the place of its key (in a list, its own place)."""

    value: Scalar | dict[str, Tree] | list[Tree]
    """Value of the node; `FAILED` if a problem with it is already reported."""
    place: Place
    dropped: bool = False
    """True for a null that drops an inherited value."""

    @property
    def children(self) -> dict[str, Tree]:
        """Entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    def get(self, part: str | int) -> Tree | None:
        """Return the entry of a key, which may be a number, or the item of a number."""
        if isinstance(self.value, dict):
            return self.value.get(str(part))
        if isinstance(self.value, list) and isinstance(part, int) and 0 <= part < len(self.value):
            return self.value[part]
        return None

    def under(self, key: str) -> dict[str, Tree]:
        """Return the entries of the mapping at a key; empty if there is no mapping."""
        inner = self.get(key)
        return {} if inner is None else inner.children

    def at(self, path: Key) -> tuple[Tree, Key]:
        """Return the deepest tree on a path, and the rest of the path."""
        tree = self
        for index, part in enumerate(path):
            inner = tree.get(part)
            if inner is None:
                return tree, path[index:]
            tree = inner
        return tree, ()

    def leaves(self, path: Key = ()) -> Iterator[tuple[Key, Tree]]:
        """Yield every scalar (and empty list or mapping) with its path."""
        if isinstance(self.value, dict) and self.value:
            for key, inner in self.value.items():
                yield from inner.leaves((*path, key))
        elif isinstance(self.value, list) and self.value:
            for index, inner in enumerate(self.value):
                yield from inner.leaves((*path, index))
        else:
            yield path, self

    def plain(self) -> Any:
        """Return the value as plain data."""
        if isinstance(self.value, dict):
            return {key: inner.plain() for key, inner in self.value.items()}
        if isinstance(self.value, list):
            return [inner.plain() for inner in self.value]
        return self.value


@dataclass(frozen=True)
class Text:
    """YAML text and its source."""

    content: str
    label: str
    """Path of the file as the user would write it, or "command line"."""
    file: Path | None = None
    rank: int = 0
    shift: int = 0
    """Number of columns before the text, on the command line."""
    whole: str | None = None
    """Whole argument on the command line."""

    @cached_property
    def _lines(self) -> list[str]:
        return self.content.splitlines()

    def place(self, line: int, column: int) -> Place:
        """Return the place of a position counted from 0."""
        if self.whole is not None:
            return Place(self.label, 0, self.shift + column + 1, self.whole, None, self.rank)
        lines = self._lines
        return Place(self.label, line + 1, column + 1, lines[line] if line < len(lines) else "", self.file, self.rank)

    def at(self, mark: Any) -> Place:
        """Return the place of a mark of PyYAML."""
        return self.place(mark.line, mark.column)


def parse(text: Text) -> tuple[Tree | None, list[Problem]]:
    """Return a tree, or None if the text is not YAML, and the problems in it. An empty text is a null."""
    reading = _Reading(text)
    try:
        node = yaml.compose(text.content, Loader=_Loader)
    except (yaml.YAMLError, UnicodeEncodeError, RecursionError) as error:
        return None, [_not_yaml(text, error)]
    tree = Tree(None, text.place(0, 0)) if node is None else reading.tree(node, (), text.at(node.start_mark), ())
    return tree, reading.problems


class _Untagged(Composer):  # type: ignore[misc]
    """Loader mixin that gives no tag to nodes without a tag, so that every plain scalar is text; `scalar` below
    interprets it.
    """

    def resolve(self, *about: Any) -> None: ...


class _Loader(_Untagged, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The events of libyaml (of PyYAML, where that is missing), composed in Python: C would nest without a bound."""

    def __init__(self, stream: str) -> None:
        super(_Untagged, self).__init__()
        super(Composer, self).__init__(stream)


def scalar(text: str) -> Scalar:
    """Return the value of a plain (unquoted) YAML scalar."""
    return next((read(text) for form, read in _SCALARS if form.fullmatch(text)), text)


class _Reading:
    """Conversion of the nodes of YAML into a tree."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self.values: dict[int, Any] = {}
        """Value of each node that was read: an alias is the same node again."""

    def _problem(self, path: Key, message: str, place: Place, hint: str | None = None) -> Any:
        self.problems.append(Problem(path, message, hint, place))
        return FAILED

    def tree(self, node: yaml.Node, path: Key, place: Place, outer: tuple[yaml.Node, ...]) -> Tree:
        """Return the tree of a node inside `outer` nodes, the value at `place`."""
        if len(outer) > TOO_DEEP:
            return Tree(self._problem((), f"nested more than {TOO_DEEP} deep", place), place)
        if node in outer:
            return Tree(self._problem(path, "an alias (*) inside its own anchor (&)", place), place)
        if id(node) not in self.values:
            value = self._value(node, path, place, (*outer, node))
            if node.tag is not None:
                hint = "write the value without it; quotes make it text"
                value = self._problem(path, "YAML tags (!) are not read", place, hint)
            self.values[id(node)] = value
        return Tree(self.values[id(node)], place)

    def _value(self, node: yaml.Node, path: Key, place: Place, outer: tuple[yaml.Node, ...]) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._entries(node, path, outer)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self.tree(item, (*path, index), self.text.at(item.start_mark), outer) for index, item in items]
        if node.style:
            return node.value
        own = self.text.at(node.start_mark)
        if curly := _CURLY.fullmatch(node.value):
            hint = f'write "{curly[1]}", in straight quotes'
            return self._problem(path, "curly quotes are letters like any other", own, hint)
        if own.line > place.line > 0 and re.match(r"-[A-Za-z{\[\"']", node.value):
            return self._problem(path, "no space after the dash", own, f"write - {node.value[1:]}")
        return scalar(node.value)

    def _entries(self, node: yaml.MappingNode, path: Key, outer: tuple[yaml.Node, ...]) -> Any:
        entries: dict[str, Tree] = {}
        readable = True
        for key, value in node.value:
            place = self.text.at(key.start_mark)
            text = self._key(key, path, place)
            inner = self.tree(value, (*path, text or ""), place, outer)
            if text is None:
                readable = False
            elif (first := entries.setdefault(text, inner)) is not inner:
                where = f"line {first.place.line}, " if first.place.line else ""
                message = f'duplicate key "{text}"; the first is on {where}column {first.place.column}'
                self._problem((*path, text), message, place, "remove one of the two")
                if first.children and inner.children:  # what one lacks may be in the other
                    first.value = {**inner.children, **first.children}
        return entries if readable else FAILED

    def _key(self, node: yaml.Node, path: Key, place: Place) -> str | None:
        """Return the text of a key; None if its mapping cannot be read because of it."""
        if not isinstance(node, yaml.ScalarNode):
            self._problem(path, "a key must be text, this one is a list or a mapping", place, _BRACES)
            return None
        text: str = node.value
        if not node.style and (strange := _STRANGE.search(text)):
            self._problem((*path, text), _strange(strange[0]), place, _PLAIN)
            text = _STRANGE.sub("", text)
        if not node.style and text == "<<":
            self._problem((*path, "<<"), "merge keys are not read", place, "use extends, or ${stages.a.b}")
            return None
        if not text or not (node.style or isinstance(scalar(text), str)):
            hint = f'write "{text}", in quotes' if text else None
            self._problem(path, f"a key must be text, this one is {text or 'empty'}", place, hint)
        return text


_MARKS = {"{": "brace", "[": "bracket", '"': "quote", "'": "quote"}
_BRACES = "text that begins with { or [ needs quotes"
_HINTS = {
    "cannot start any token": "indent with spaces; text that begins with @, ` or % needs quotes",
    "mapping values are not allowed here": "text with a colon and a space in it needs quotes",
    "unknown escape character": "write paths with /, and text with backslashes in single quotes",
    "expected <block end>": "is the indentation the same as above?",
    "undefined alias": "text that begins with * needs quotes",
}


def _not_yaml(text: Text, error: Exception) -> Problem:
    """Return the problem of a text that libyaml refused (`error`). It takes the messages of PyYAML's own, slow parser,
    which are better.
    """
    try:
        yaml.compose(text.content, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as better:
        return _syntax(better, text)
    except yaml.reader.ReaderError as unreadable:
        before = text.content[: unreadable.position].split("\n")
        place = text.place(len(before) - 1, len(before[-1]))
        return Problem((), f"not a YAML character: {chr(unreadable.character)!r}", place=place)
    except RecursionError:
        return Problem((), f"nested more than {TOO_DEEP} deep", place=text.place(0, 0))
    return Problem((), f"not YAML: {error}", place=text.place(0, 0))


def _syntax(error: yaml.MarkedYAMLError, text: Text) -> Problem:
    """Return the mistake at the place where it begins: an open bracket or quote is noticed lines below."""
    mark, context, problem = error.problem_mark or error.context_mark, error.context or "", error.problem or ""
    hint = next((hint for part, hint in _HINTS.items() if part in problem), None)
    if problem.startswith("but "):
        problem = f"{context}, {problem}"
    said = problem.replace(r"character '\t'", "a tab").replace(
        "mapping values are", "a colon with a space behind it is"
    )
    opened = error.context_mark if "quoted" in context else _left_open(text.content, mark)
    if opened is not None and opened.line < mark.line:
        sign = text.content[opened.index]
        hint = f"noticed at line {mark.line + 1}, column {mark.column + 1}: {said}"
        message = f"not YAML: this {_MARKS[sign]} {sign} is not closed in its place"
        return Problem((), message, hint, text.at(opened))
    if "simple key" in context:
        mark = error.context_mark
        key = text.at(mark).text.strip()
        hint = f"is a colon missing? write {key}:" if re.fullmatch(r"[\w-]+", key) else None
    elif reference := re.compile(r"\$\{[^{}]*\}").match(text.content, max(mark.index - 1, 0)):
        hint = f'write "{reference[0]}", in quotes: inside braces and brackets a reference needs them'
    line, column, said, hint = _layout(text.content, mark) or (mark.line, mark.column, said, hint)
    return Problem((), f"not YAML: {said}", hint, text.place(line, column))


def _left_open(content: str, noticed: Any) -> Any:
    """Return the mark of a bracket that is still open at `noticed`, or of a quote that the next quote closed."""
    opened: list[Any] = []
    quoted = None
    with suppress(yaml.YAMLError):
        for token in yaml.scan(content, Loader=yaml.SafeLoader):
            if token.start_mark.index >= noticed.index:
                break
            if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
                opened.append(token.start_mark)
            elif isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken):
                opened = opened[:-1]
            elif isinstance(token, yaml.ScalarToken) and token.style in _MARKS:
                quoted = token.start_mark if token.start_mark.line < token.end_mark.line == noticed.line else None
    return quoted or (opened[-1] if opened else None)


_STRANGE = re.compile("[\u00a0\u2000-\u200b\u202f\u205f\u3000\ufeff]")
_PLAIN = "replace it by an ordinary space"
_CURLY = re.compile("[\u201c\u201e\u2018](.*)[\u201d\u201c\u2019]", re.DOTALL)


def _strange(character: str) -> str:
    name = unicodedata.name(character, "strange character").lower()
    return f"a {name} (U+{ord(character):04X}) is not a space in YAML"


def _layout(content: str, mark: Any) -> tuple[int, int, str, str] | None:
    """Return (line, column, message, hint) of wrong spaces in the line that YAML refuses, or in the line above it,
    which YAML then read wrongly. Lines and columns count from 0.
    """
    lines = [*content.splitlines(), ""]
    line = lines[mark.line]
    above = next((number for number in range(mark.line - 1, -1, -1) if lines[number].strip()), mark.line)
    for number in (above, mark.line):
        if strange := _STRANGE.search(lines[number].partition(" #")[0]):
            return number, strange.start(), _strange(strange[0]), _PLAIN
        if key := re.match(r"\s*(?:- )?([\w.-]+):(?=[^\s:/])([^:]*)$", lines[number]):
            return number, key.end(1), "no space after the colon", f"write {key[1]}: {key[2].strip()}"
    is_now, was = (len(text) - len(text.lstrip(" -")) for text in (line, lines[above]))
    a_key = re.match(r" *[\w.-]+:\s", f"{line} ") and ": " not in line[: mark.column]
    if is_now != was and a_key and not lines[above].rstrip().endswith(":"):
        said = f"indented by {is_now} spaces, the line above by {was}"
        return mark.line, is_now, said, f"{was} spaces align it with the line above"
    return None
