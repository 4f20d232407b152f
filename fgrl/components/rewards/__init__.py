"""Rewards of a rollout, for each token."""
