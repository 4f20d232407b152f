"""Environments that a policy interacts with."""
