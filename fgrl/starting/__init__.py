"""From a file of rows and a model to a first recipe: what `fgrl init` finds out about them, and what it writes."""

from fgrl.starting.columns import KINDS, Kind
from fgrl.starting.draft import Draft, Request, draft

__all__ = ["KINDS", "Draft", "Kind", "Request", "draft"]
