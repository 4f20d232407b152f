"""Transfers, which bring the weights of a model to the servers of an engine."""
