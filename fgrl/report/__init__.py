"""What a run looks like: `write(folder)` makes its `report.html`; `terminal` prints tokens as the model sees them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"page": ["write"]})
