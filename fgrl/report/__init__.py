"""What a run looks like: `write(folder)` makes its `report.html`; `terminal` prints tokens as the model sees them."""

from fgrl import lazy

__getattr__, __dir__ = lazy.attributes(__name__, {"page": ["write"]})
__all__ = ["write"]
