"""Pages and tables of results: `write(folder)` makes a run's `report.html`; `terminal` prints tokens as the model sees
them.
"""

from fgrl.base import lazy

__getattr__, __dir__ = lazy.attributes(__name__, {"page": ["write"]})
__all__ = ["write"]
