"""Recipes: YAML, `extends`, overrides and `${...}` into built and checked stages, with the position of every mistake."""

from fgrl.recipe.loading import Recipe, know_components, load
from fgrl.recipe.schema import schema

__all__ = ["Recipe", "know_components", "load", "schema"]
