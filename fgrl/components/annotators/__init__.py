"""What adds scores, verdicts, critiques and spans to samples."""
