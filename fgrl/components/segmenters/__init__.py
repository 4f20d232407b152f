"""How responses are divided into segments."""
