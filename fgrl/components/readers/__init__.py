"""Readers of prompts, pairs and answers."""
