"""Clients of language models, for annotators, judges and rewriters."""
