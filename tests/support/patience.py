"""How long tests wait for something that will happen: a bound on hanging, on a machine however busy, and no measure of speed."""

HUNG = 1200.0
"""Seconds after which a process or a thread counts as hung."""
