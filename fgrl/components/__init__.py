"""All components that a recipe may name. Importing this package registers their names; the file of a component is
imported when it is needed.
"""

import json
from functools import cache
from pathlib import Path

from fgrl import registry

INDEX = Path(__file__).with_name("index.json")
"""Kind, name, module and summary of fgrl's components and stages, as written by `tools/component_index.py`."""


@cache
def _index() -> dict[str, dict[str, tuple[str, str]]]:
    return json.loads(INDEX.read_text(encoding="utf-8"))


def announce() -> None:
    """Register the names, also in a registry that has been cleared."""
    registry.announce(_index())


announce()
