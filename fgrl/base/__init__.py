"""What everything else stands on: errors, files, the terminal, lazy imports, secrets, tensor operations."""
