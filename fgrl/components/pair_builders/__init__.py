"""Pair builders, which make preference pairs from a sample's responses."""
