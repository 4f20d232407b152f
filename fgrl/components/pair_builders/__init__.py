"""Preference pairs of a sample's responses."""

from fgrl.components.pair_builders import all_ranked, by_rule, chain, judged
