"""Preference pairs of a sample's candidates."""

from fgrl.components.pair_builders import by_rule

__all__ = ["by_rule"]
