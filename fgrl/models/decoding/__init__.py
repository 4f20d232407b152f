"""Decoding: caches of keys and values, and sampling."""
