"""Seeds derived from a run's seed, so that every round, epoch and turn draws from a separate random stream."""

from __future__ import annotations

import hashlib
import random

from fgrl.base import lazy

numpy = lazy.load("numpy")
torch = lazy.load("torch")

STRIDE = 1_000_003
"""A prime that is larger than any number of rounds, epochs or turns, so that no two pairs of (seed, number) share a
stream.
"""


def of_round(seed: int, number: int) -> int:
    """Return the seed of a round or an epoch of a run."""
    return seed * STRIDE + number


def of_turn(seed: int, number: int) -> int:
    """Return the seed of a turn of a conversation; the first turn (0) draws from the run's own seed."""
    return seed + STRIDE * number


def of_name(name: str, size: int = 8) -> int:
    """Return the seed of a named random stream, with `size` bytes."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=size).digest(), "big")


def of_evaluation(seed: int) -> int:
    """Return the seed of the evaluations during a run: equal for all of them, and different from the seed of every
    round.
    """
    return of_round(seed, STRIDE - 1)


def seed_libraries(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
