"""Engines as processes: servers of vLLM that are started, watched, replaced and ended, and verified transfers of
weights to them. This package does not depend on any algorithm.
"""
