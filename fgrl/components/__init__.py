"""Everything that a recipe may name. Importing this package makes the names known; a component's file is imported when
it is needed.
"""

import json
from functools import cache
from pathlib import Path

from fgrl import registry

INDEX = Path(__file__).with_name("index.json")
"""Kind, name, module and summary of our own components and stages, as `tools/component_index.py` writes them."""


@cache
def _index() -> dict[str, dict[str, tuple[str, str]]]:
    return json.loads(INDEX.read_text(encoding="utf-8"))


def announce() -> None:
    """Make the names known, also to a registry that has forgotten them."""
    registry.announce(_index())


announce()
