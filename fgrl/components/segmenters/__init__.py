"""Segmenters, which divide responses into segments."""
