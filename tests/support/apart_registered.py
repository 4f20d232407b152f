"""Imported by a recipe: the engine `apart`, registered."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from apart_engine import Apart

from fgrl.registry import register

register("apart")(Apart)
