"""What rewrites responses step by step, as their highlights ask."""

from fgrl.components.rewriters import by_model, delete, replace
