"""Data sets of questions: contexts, references, shots."""
