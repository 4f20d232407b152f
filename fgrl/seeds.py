"""Seeds derived from a run's seed, so that every round, epoch and turn draws from a random stream of its own."""

from __future__ import annotations

STRIDE = 1_000_003
"""A prime that is larger than any number of rounds, epochs or turns: no two pairs of (seed, number) share a stream."""


def of_round(seed: int, number: int) -> int:
    """The seed of a round or an epoch of a run."""
    return seed * STRIDE + number


def of_turn(seed: int, number: int) -> int:
    """The seed of a turn of a conversation; the first turn (0) draws from the run's own seed."""
    return seed + STRIDE * number
