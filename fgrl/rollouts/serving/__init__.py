"""Engines as processes: servers of vLLM that are started, watched, replaced and ended, and weights that are shown to have
reached them. Knows no algorithm.
"""
