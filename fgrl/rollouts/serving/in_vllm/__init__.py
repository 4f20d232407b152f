"""Modules that vLLM's own processes import. The folder is put on their path, so nothing here may import fgrl."""
