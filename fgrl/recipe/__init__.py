"""Recipes: YAML, `extends`, overrides and `${...}` into built and checked stages, with the place of every mistake."""

from typing import TYPE_CHECKING

from fgrl import lazy
from fgrl.recipe.files import Address, expand, meant, rows
from fgrl.recipe.loading import Recipe, know_components, load
from fgrl.recipe.schema import schema
from fgrl.recipe.shipped import by_name, similar
from fgrl.recipe.shipped import names as shipped_names

if TYPE_CHECKING:
    from fgrl.recipe.machines import placed
    from fgrl.recipe.paths import keys_below
else:
    __getattr__, _ = lazy.attributes(__name__, {"machines": ["placed"], "paths": ["keys_below"]})
__all__ = [
    "Address", "Recipe", "by_name", "expand", "keys_below", "know_components", "load", "meant", "placed", "rows",
    "schema", "shipped_names", "similar",
]  # fmt: skip
