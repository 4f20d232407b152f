"""Foundations that every other package uses: errors, files, the terminal, lazy imports, secrets, tensor operations."""
