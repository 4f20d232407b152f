"""Who decides what no program can check."""
