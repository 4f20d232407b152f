"""A component in one file, with a test that passes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from string import Template

from fgrl import registry
from fgrl.base.errors import UsageError
from fgrl.experiments import recipe

TEMPLATES = resources.files(__package__) / "templates"


def component_kinds() -> list[str]:
    """Return the kinds that have a template."""
    return sorted(file.name.removesuffix(".txt") for file in TEMPLATES.iterdir() if file.name.endswith(".txt"))


def new(kind: str, name: str, folder: Path | str = ".") -> tuple[Path, Path]:
    """Write a component and a passing test for it into a folder, as `fgrl new`. Return both files.

    name: its name in recipes. Raises `UsageError` for an unknown kind, a name that is taken or cannot be a file name,
    and a file that already exists.
    """
    if kind not in component_kinds():
        raise UsageError(registry.unknown("kind", kind, component_kinds()))
    module = name.replace("-", "_")
    if not module.isidentifier():
        raise UsageError(f'"{name}" cannot be a file name and a class name; use letters, digits and _')
    recipe.know_components()
    if name in registry.names(kind):
        taken = registry.source(registry.get(kind, name))
        raise UsageError(f'the name "{name}" is taken in kind {kind}: {taken}')
    component, test = Path(folder) / f"{module}.py", Path(folder) / f"test_{module}.py"
    for path in (component, test):
        if path.exists():
            raise UsageError(f"{path} is already there; nothing was written")
    words = {"name": name, "module": module, "cls": _class_name(module)}
    text = (TEMPLATES / f"{kind}.txt").read_text(encoding="utf-8")
    for path, part in zip((component, test), text.split("%%% test\n"), strict=True):
        path.write_text(Template(part).substitute(words), encoding="utf-8")
    return component, test


def _class_name(module: str) -> str:
    name = "".join(part.capitalize() for part in module.split("_"))
    return name if name.isidentifier() else f"Component{name}"
