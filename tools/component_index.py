"""Write `fgrl/components/index.json`: kind, name, module and summary of every component of fgrl.

Commands know the components by it and import only the files that are named. Run it after a component was added, renamed
or described anew: `python tools/component_index.py`. A test compares.
"""

from __future__ import annotations

import importlib
import json
import pkgutil

import fgrl.components
import fgrl.experiments.stages
import fgrl.kinds
from fgrl import registry
from fgrl.components import INDEX


def index() -> str:
    """The text of the index: every file of the catalogue and of the stages is imported for it."""
    for package in (fgrl.components, fgrl.experiments.stages):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    kinds = {kind: {name: registry.get(kind, name) for name in registry.names(kind)} for kind in registry.kinds()}
    known = {
        kind: {
            name: [cls.__module__, registry.summary(cls)]
            for name, cls in own.items()
            if cls.__module__.startswith("fgrl.")
        }
        for kind, own in kinds.items()
    }
    return _object({kind: _object({name: json.dumps(entry, ensure_ascii=False) for name, entry in own.items()}, 2)
                    for kind, own in known.items()}) + "\n"  # fmt: skip


def _object(entries: dict[str, str], indent: int = 0) -> str:
    """JSON with a line for each entry."""
    lines = ",\n".join(f"{' ' * (indent + 2)}{json.dumps(name)}: {text}" for name, text in entries.items())
    return f"{{\n{lines}\n{' ' * indent}}}"


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
