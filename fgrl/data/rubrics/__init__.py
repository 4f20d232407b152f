"""Data sets of demands: criteria with checks."""
