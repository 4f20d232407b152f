"""Kinds of component, their names, and how a recipe's plain data becomes typed components. Imports no torch."""

from fgrl.registry.names import (
    NotRegistered,
    get,
    kind,
    kind_of,
    kinds,
    name_of,
    names,
    register,
    scratch,
    source,
)
from fgrl.registry.problems import Place, Problem, Problems
from fgrl.registry.settings import Component, File, Settings, Unkeyed

__all__ = [
    "Component",
    "File",
    "NotRegistered",
    "Place",
    "Problem",
    "Problems",
    "Settings",
    "Unkeyed",
    "get",
    "kind",
    "kind_of",
    "kinds",
    "name_of",
    "names",
    "register",
    "scratch",
    "source",
]
