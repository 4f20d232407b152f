"""Runs and stages on disk: `Run` and `Stage` are the only readers and writers of their files."""
