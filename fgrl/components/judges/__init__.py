"""Judges, which decide criteria that no program can check."""
