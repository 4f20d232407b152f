"""Where prompts, pairs and answers come from."""

from fgrl.components.readers import hf, jsonl, lines, products

__all__ = ["hf", "jsonl", "lines", "products"]
