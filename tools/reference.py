"""The generated pages of the site's reference: one for each kind of component, for the blocks of settings, for names in other
toolkits and for the Python side.

`site.py` adds them when the site is built. What they say comes from the classes: their docstrings, and of each field the type,
default, bounds and docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import python_reference

from fgrl import registry
from fgrl.base import foreign
from fgrl.experiments.recipe import know_components
from fgrl.experiments.recipe.schema import schema
from fgrl.registry.docstrings import source_file

ROOT = Path(__file__).resolve().parents[1]
USED_SHOWN = 12


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    know_components()
    kinds = sorted(kind for kind in registry.kinds() if _names(kind))
    return {
        "blocks.md": _blocks_page(),
        "names.md": _names_page(),
        "python.md": python_reference.page(),
        **{f"{kind}.md": _kind_page(kind) for kind in kinds},
    }


def overview() -> str:
    """Return the end of the reference's start page: tables of the kinds and of a recipe's keys, with links to the pages."""
    know_components()
    rows = [
        f"| [{kind}]({kind}.md) | {len(names)} | {_first_sentence(registry.kinds()[kind].__doc__)} |"
        for kind in registry.kinds()
        if (names := _names(kind))
    ]
    keys = [
        f"| `{name}` | {about.get('description', 'Variants of this recipe by name.')} |"
        for name, about in schema()["properties"].items()
    ]
    return "\n".join(
        [
            "",
            "## Kinds of component",
            "",
            "| kind | components | what it is |",
            "|---|---|---|",
            *rows,
            "",
            "[Blocks of settings](blocks.md): the groups of fields that several components share, such as `model`, `lora`, `sampling`",
            "and `train`. [Python](python.md): what the code of components and `import fgrl` can use. [Names](names.md): what other",
            "toolkits call our settings.",
            "",
            "## The top of a recipe",
            "",
            "| key | what it holds |",
            "|---|---|",
            *keys,
            "",
        ]
    )


def _names(kind: str) -> list[str]:
    """fgrl's own components: those of a user's file or of another package are not documented here."""
    return [name for name in registry.names(kind) if registry.get(kind, name).__module__.startswith("fgrl.")]


def _kind_page(kind: str) -> str:
    cls = registry.kinds()[kind]
    lines = [f"# {kind}", "", _text(cls.__doc__), ""]
    lines += ["| name | what it does |", "|---|---|"]
    lines += [
        f"| [`{name}`](#{_anchor(name)}) | {_cell(_first_sentence(registry.get(kind, name).__doc__))} |"
        for name in _names(kind)
    ]
    for name in _names(kind):
        about = registry.describe(kind, name)
        lines += ["", f"## {name}", "", _text(about["doc"]), ""]
        lines += [*_fields(about["fields"]), "```yaml", about["example"], "```", "", _source(registry.get(kind, name))]
    return "\n".join(lines) + "\n"


def _names_page() -> str:
    names = foreign.table()
    toolkits = ("TRL", "OpenRLHF", "verl", "axolotl")

    def theirs(of: dict[str, Any]) -> str:
        lists = [[of[toolkit]] if isinstance(of.get(toolkit), str) else of.get(toolkit, []) for toolkit in toolkits]
        return " | ".join(", ".join(f"`{name}`" for name in each) for each in lists)

    head = [f"| fgrl | {' | '.join(toolkits)} |", "|---" * (1 + len(toolkits)) + "|"]
    return "\n".join(
        [
            "# Names in other toolkits",
            "",
            "What our settings and commands are called in TRL, OpenRLHF, verl and axolotl. The terminal answers these names with ours. A name",
            "in the same line need not count the same: [from TRL](../how-to/from-trl.md), [from verl](../how-to/from-verl.md).",
            "",
            "## Settings",
            "",
            "Below a stage (`stages.policy.train.lr`); `track` and `seed` stand at the top of a recipe.",
            "",
            *head,
            *(f"| `{ours}` | {theirs(of)} |" for ours, of in names["settings"].items()),
            "",
            "## Commands",
            "",
            *head,
            *(f"| `fgrl {ours}` | {theirs(of)} |" for ours, of in names["commands"].items()),
            "",
        ]
    )


def _blocks_page() -> str:
    lines = ["# Blocks of settings", ""]
    lines += [
        "Groups of fields that a recipe nests in components. `fgrl show rl.train` prints the block of one place.",
        "",
    ]
    own = {name for kind in registry.kinds() for name in _names(kind)}
    places = {
        cls: [path for path in used if path.partition(".")[0] in own]
        for cls, used in registry.blocks().items()
        if cls.__module__.startswith("fgrl.")
    }
    blocks = {cls: used for cls, used in places.items() if used}
    lines += ["| block | used as |", "|---|---|"]
    lines += [f"| [{cls.__name__}](#{cls.__name__.lower()}) | {_used(used, 3)} |" for cls, used in blocks.items()]
    for cls, used in blocks.items():
        about = registry.describe_block(cls, used)
        lines += ["", f"## {cls.__name__}", "", _text(about["doc"]), "", f"Used as {_used(used, USED_SHOWN)}.", ""]
        lines += [*_fields(about["fields"]), _source(cls)]
    return "\n".join(lines) + "\n"


def _used(paths: list[str], most: int) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(f"`{path}`" for path in paths[:most]) + more


def _fields(fields: list[dict[str, Any]]) -> Iterator[str]:
    if not fields:
        yield from ("No fields.", "")
        return
    yield from ("| field | type | default | what it is |", "|---|---|---|---|")
    for field in fields:
        default = "required" if field["required"] else _code(field["default"])
        bounds = f", {field['bounds']}" if field["bounds"] else ""
        unkeyed = "" if field["keyed"] else " Not part of the cache key."
        help = re.sub(r"(?<![.!?])$", ".", " ".join(field["help"].split()))
        yield f"| `{field['name']}` | {_cell(field['type'] + bounds)} | {default} | {_cell(help + unkeyed)} |"
    yield ""


def _source(cls: type) -> str:
    file = source_file(cls)
    assert file is not None, cls
    return f"Source: `{file.resolve().relative_to(ROOT)}`"


def _text(doc: str | None) -> str:
    """A docstring, in which `<` is no HTML."""
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", inspect.cleandoc(doc or ""))


def _first_sentence(doc: str | None) -> str:
    paragraph = " ".join(_text(doc).split("\n\n")[0].split())
    return re.split(r"(?<=[\w)\"`])\.\s+(?=[A-Z`])", paragraph)[0].rstrip(".") + "."


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _anchor(name: str) -> str:
    """Of its heading, as GitHub and mkdocs make it."""
    return re.sub(r"[^\w\- ]", "", name).lower().replace(" ", "-")
