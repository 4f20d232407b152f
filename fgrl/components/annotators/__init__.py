"""Annotators, which add scores, verdicts, critiques and spans to samples."""
