"""The recipes of `templates/`, filled in. `<< >>` is a value, `% if` a line that depends on one; `${...}` stays for the
recipe.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fgrl.base import lazy
from fgrl.registry.tree import scalar

jinja2 = lazy.load("jinja2")

HERE = Path(__file__).with_name("templates")
WIDTH = 120


@cache
def numbers() -> dict[str, Any]:
    """Return the content of `numbers.yaml`. A number such as 1e-4 is a text there, so that it is written in this
    form.
    """
    loaded: dict[str, Any] = yaml.safe_load((HERE / "numbers.yaml").read_text(encoding="utf-8"))
    return loaded


def filled(kind: str, **values: Any) -> str:
    """Return the recipe of a kind as YAML with comments."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        line_statement_prefix="%", variable_start_string="<<", variable_end_string=">>", block_start_string="<%",
        block_end_string="%>", comment_start_string="<#", comment_end_string="#>",
    )  # fmt: skip
    environment.filters |= {"yaml": flow, "as_comment": _as_comment}
    text = environment.get_template(f"{kind}.j2").render(numbers=numbers(), **values)
    return "".join(f"{line}\n" for line in text.splitlines() if line.strip())


def _as_comment(lines: Sequence[str]) -> str:
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_long_words=False)
    return "\n".join(map(wrapper.fill, lines))


class _Flow(yaml.SafeDumper):  # type: ignore[misc]
    """Writer of texts in a form that a recipe reads unchanged: `${` would otherwise refer to another value, and `1e5`
    would be a number.
    """


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if "\n" in text or not isinstance(scalar(text), str) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text.replace("${", "\\${"), style)


_Flow.add_representer(str, _text)


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.dump(
        [value], None, _Flow, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    return text.strip()[1:-1]
