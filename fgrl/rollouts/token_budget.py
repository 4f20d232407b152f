"""Passes of rows without padding: their number under a limit of tokens, and the rows in each."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace


def dealt(lengths: Sequence[int], parts: int) -> list[list[int]]:
    """Return the indices of `lengths` in `parts` lists with about equal sums, the list with the largest sum first."""
    made: list[list[int]] = [[] for _ in range(parts)]
    sums = [(0, part) for part in range(parts)]
    heapify(sums)
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        total, part = sums[0]
        made[part].append(index)
        heapreplace(sums, (total + lengths[index], part))
    return sorted(made, key=lambda part: -sum(lengths[index] for index in part))


def fewest(lengths: Sequence[int], most: int, world: int = 1) -> int:
    """Return the number of passes that each of `world` processes makes, so that none of them reads more than `most`
    tokens, or than the longest row alone; 0 without rows.
    """
    count = -(-sum(lengths) // (most * world))
    while lengths and sum(lengths[index] for index in dealt(lengths, count * world)[0]) > max(most, *lengths):
        count += 1
    return count
