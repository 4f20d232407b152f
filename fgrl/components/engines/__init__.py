"""Engines, which draw responses from a model."""
