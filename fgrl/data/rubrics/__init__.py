"""Data sets of prompts with rubrics: criteria with checks."""
