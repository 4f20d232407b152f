"""How responses are drawn from a model."""
