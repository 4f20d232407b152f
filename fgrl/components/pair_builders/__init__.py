"""Preference pairs of a sample's responses."""
