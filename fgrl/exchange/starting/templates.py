"""The recipes of `templates/`, filled in. `<< >>` is a value, `% if` a line that depends on one; `${...}` is left to the
recipe.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fgrl.base import lazy

jinja2 = lazy.load("jinja2")

HERE = Path(__file__).with_name("templates")
WIDTH = 120
PLAIN = re.compile(r"[A-Za-z_./~][\w./~+-]*|[\w./-]+\.py:\w+")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "nan", "inf", "y", "n", "~"}


@cache
def numbers() -> dict[str, Any]:
    """Return `numbers.yaml`. A number such as 1e-4 is a text there, so that it is written as it is."""
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


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    text = value.replace("${", "\\${") if isinstance(value, str) else value  # `${` would ask for another value
    return json.dumps(text, ensure_ascii=False)
