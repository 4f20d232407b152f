"""Conversion of recipes (YAML, `extends`, overrides and `${...}`) into built and checked stages, with the place of
every mistake.

Every name is imported at its first use.
"""

from typing import TYPE_CHECKING

from fgrl.base import lazy

if TYPE_CHECKING:
    from fgrl.experiments.recipe.files import Address, expand, meant, recipe_name, rows
    from fgrl.experiments.recipe.loading import Recipe, know_components, load
    from fgrl.experiments.recipe.machines import placed, read
    from fgrl.experiments.recipe.paths import keys_below
    from fgrl.experiments.recipe.shipped import by_name, shipped_names, similar

__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "files": ["Address", "expand", "meant", "recipe_name", "rows"],
        "loading": ["Recipe", "know_components", "load"],
        "machines": ["placed", "read"],
        "paths": ["keys_below"],
        "shipped": ["by_name", "shipped_names", "similar"],
    },
)
__all__ = [
    "Address", "Recipe", "by_name", "expand", "keys_below", "know_components", "load", "meant", "placed", "recipe_name",
    "rows", "shipped_names", "similar",
]  # fmt: skip
