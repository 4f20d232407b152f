"""Kinds of component, their names, and the conversion of a recipe's plain data into typed components. Imports no torch."""

from fgrl.registry.blocks import blocks, describe_block, describe_field, lookup, places
from fgrl.registry.building import build
from fgrl.registry.context import Context
from fgrl.registry.describing import describe
from fgrl.registry.docstrings import source, summary, undocumented
from fgrl.registry.names import (
    NotRegistered,
    about,
    announce,
    get,
    kind,
    kind_of,
    kinds,
    name_of,
    names,
    register,
)
from fgrl.registry.outside import import_file, load_entry_points
from fgrl.registry.problems import Key, Problem, Problems, alternatives, did_you_mean, nearest, unknown
from fgrl.registry.settings import (
    ByDevice,
    Component,
    File,
    Folder,
    FolderOrName,
    Settings,
    Unkeyed,
    names_folder,
)
from fgrl.registry.walking import dump, walk
