"""How the weights of a model reach the servers of an engine."""
