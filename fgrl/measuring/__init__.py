"""Answers to held-out prompts, measured and compared."""
