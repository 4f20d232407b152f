"""Preparation of a first recipe from a file of rows and a model: the facts that `fgrl init` finds out about them, and
the files that it writes.
"""

from fgrl.exchange.starting.choice import choose
from fgrl.exchange.starting.columns import KINDS, REWARDED, Kind
from fgrl.exchange.starting.draft import Draft, Request, draft

__all__ = ["KINDS", "REWARDED", "Draft", "Kind", "Request", "choose", "draft"]
