"""Measurement and comparison of answers to held-out prompts."""
