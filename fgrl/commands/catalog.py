"""`fgrl list`, `fgrl show`, `fgrl schema`: the components and settings that a recipe may use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.base.files import is_file
from fgrl.commands import completion
from fgrl.commands.shared import AsJson, SetValues, WrongWord, echo, emit, load
from fgrl.pages.report.text_tables import columns

library = lazy.load("fgrl.library")
problems = lazy.load("fgrl.registry.problems")
recipes = lazy.load("fgrl.experiments.recipe")
registry = lazy.load("fgrl.registry")

LIST = """
\b
Examples:
  fgrl list                                    the kinds and their components
  fgrl list segmenter
  fgrl list segmenter --import mine.py         with your own file
"""
SHOW = """
\b
Examples:
  fgrl show ppo
  fgrl show segmenter entropy
  fgrl show rl.train                           a block of settings, as recipes nest it
  fgrl show lora                               every block of this name: sampling, alarms, model, ...
  fgrl show ppo.kl_coef                        a single field
  fgrl show segmenter every_third --import every_third.py
  fgrl show recipes/small/segment_ppo.yaml     the resolved recipe, and where each value comes from
"""
SCHEMA = """
\b
Examples:
  fgrl schema > recipe.schema.json

\b
For editors that know YAML language servers, in the first line of a recipe:
  # yaml-language-server: $schema=recipe.schema.json
"""
USED_SHOWN = 6
"""Maximum number of places of a block that are printed. Further ones are only counted."""
Imports = Annotated[
    list[Path] | None, typer.Option("--import", metavar="FILE", help="Python file with components (may be repeated).")
]


def know(files: list[Path] | None) -> None:
    """Register all components: fgrl's own, those of installed packages, and those of the given files."""
    recipes.know_components()
    for file in files or []:
        if not is_file(file):
            raise UsageError(f"{file}: no such file")
        registry.import_file(file)


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="Kind to show.", show_default=False, autocompletion=completion.kinds),
    ] = None,
    imports: Imports = None,
    as_json: AsJson = False,
) -> None:
    """List the kinds of component and the components of each kind."""
    know(imports)
    catalog = library.catalog(kind)
    if as_json:
        emit(catalog)
        return
    blocks = []
    for each, components in catalog.items():
        rows = [(component["name"], component["about"]) for component in components] or [("(none yet)", "")]
        blocks.append(f"{each}: {registry.summary(registry.kinds()[each])}\n{columns(rows)}")
    echo("\n\n".join(blocks))


def show(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="[KIND] NAME | BLOCK | RECIPE",
            help="A component, a block of settings (rl.train, lora), or a recipe.",
            show_default=False,
            autocompletion=completion.explained,
        ),
    ],
    imports: Imports = None,
    set_values: SetValues = None,
    as_json: AsJson = False,
) -> None:
    """Explain a component or a block of settings: its fields with type, default, bounds and help. Or print a resolved
    recipe.
    """
    file = recipes.Address.parse(what).file
    if file.suffix in (".yaml", ".yml") or is_file(file):
        _show_recipe(Path(what), context, as_json)
        return
    know(imports)
    names = [word for word in context.args if not word.startswith("-")]
    if len(names) != len(context.args) or len(names) > 1:
        raise WrongWord(f"unexpected: {' '.join(context.args)}; wants [KIND] NAME or a recipe")
    if names:
        kind, name = what, names[0]
        registry.get(kind, name)
        components = [(kind, name)]
    else:
        components = [(kind, what) for kind in registry.kinds() if what in registry.names(kind)]
        if not components:
            _show_block_or_recipe(what, context, as_json)
            return
    described = [registry.describe(kind, name) for kind, name in components]
    if as_json:
        emit(described[0] if len(described) == 1 else described)
    else:
        echo("\n\n".join(map(_explained, described)))


def _show_block_or_recipe(what: str, context: typer.Context, as_json: bool) -> None:
    """Show an item that is not a component: a block of settings, a single field, or a shipped recipe by its name."""
    places = registry.lookup(what)
    if not places:
        if (named := recipes.by_name(what)) is not None:
            _show_recipe(named, context, as_json)
            return
        raise UsageError(_unknown(what))
    blocks: dict[Any, list[str]] = {}
    for place in places:
        for block in place.blocks:
            blocks.setdefault(block, []).append(place.path)
    if blocks:
        described = [registry.describe_block(block, paths) for block, paths in blocks.items()]
        texts = [_block(each) for each in described]
    else:
        distinct = {(place.owner, place.field): place for place in reversed(places)}
        described = [registry.describe_field(place) for place in reversed(distinct.values())]
        texts = ["\n".join([each["place"], *_field(each)]) for each in described]
    if as_json:
        emit(described[0] if len(described) == 1 else described)
    else:
        echo("\n\n".join(texts))


def _unknown(what: str) -> str:
    if what in registry.kinds():
        return f'"{what}" is a kind; its components: {", ".join(registry.names(what))}  (fgrl list {what})'
    known = {name for kind in registry.kinds() for name in registry.names(kind)}
    known |= {path.rpartition(".")[2] for paths in registry.blocks().values() for path in paths}
    guess = registry.did_you_mean(what, sorted({*known, *recipes.shipped_names()}))
    return f'no component, block of settings or recipe is called "{what}"{guess}  (fgrl list)'


def _explained(about: dict[str, Any]) -> str:
    lines = [f"{about['kind']} {about['name']}  ({about['source']})", "", about["doc"].strip(), ""]
    for field in about["fields"]:
        lines += _field(field)
        if "fields" in field:
            lines.append(f"      fgrl show {about['name']}.{field['name']} explains its fields")
    lines += ["", "In a recipe:", *[f"  {line}" for line in about["example"].splitlines()]]
    return "\n".join(lines)


def _block(about: dict[str, Any]) -> str:
    used = about["used"]
    more = f" and {len(used) - USED_SHOWN} more" if len(used) > USED_SHOWN else ""
    lines = [f"{about['block']}  ({about['source']})", "", about["doc"].strip(), ""]
    lines += [f"Used as {', '.join(used[:USED_SHOWN])}{more}.", ""]
    for field in about["fields"]:
        lines += _field(field)
        if "fields" in field:
            lines.append(f"      fgrl show {used[0]}.{field['name']} explains its fields")
    return "\n".join(lines)


def _field(field: dict[str, Any]) -> list[str]:
    bounds = f", {field['bounds']}" if field.get("bounds") else ""
    default = "  required" if field["required"] else f" = {field['default']}"
    return [
        f"  {field['name']}: {field['type']}{bounds}{default}",
        *(f"      {line}" for line in field["help"].splitlines()),
    ]


def _show_recipe(path: Path, context: typer.Context, as_json: bool) -> None:
    recipe = load(path, context.args, context)
    origins = {problems.dotted(place): str(origin) for place, origin in recipe.origins.items()}
    if as_json:
        emit({"recipe": recipe.data, "origins": origins})
        return
    echo(recipe.to_yaml().rstrip())
    echo("\n# where the values come from")
    echo(columns([("#", place, origin) for place, origin in origins.items()], indent=""))


def schema() -> None:
    """Print the JSON Schema of a recipe, for editors."""
    emit(library.schema())
