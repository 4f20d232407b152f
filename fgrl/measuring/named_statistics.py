"""The closed list of statistics that a measured number may be: functions of stored values and of draws of clusters.

Each takes draws [D,G], the number of times that each of the G clusters was drawn, and returns [D] values: NaN if a draw
leaves the value undefined. Rows are [R,K] values, and `place` [R] is the cluster of each row; without `place` there is
one row for each cluster. An infinite value counts as larger (or smaller) than all others. A number can be stored,
because these values are enough to compute it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from fgrl.base import lazy
from fgrl.measuring.bradley_terry import POINTS_PER_NAT, gaps
from fgrl.measuring.length_adjusted import rate_at_equal_length

np = lazy.load("numpy")
sacrebleu = lazy.load("sacrebleu.metrics")


# -- sums of the clusters ----------------------------------------------------------------------------------------------


def weighted_mean(draws: Any, rows: Any, place: Any) -> Any:
    """Return the weighted mean. Rows: (sum of weight x value, sum of weights)."""
    top, bottom = (np.ascontiguousarray(column) for column in rows.T)
    return (draws @ top) / (draws @ bottom)


def quotient(draws: Any, rows: Any, place: Any, top: Sequence[float], bottom: Sequence[float]) -> Any:
    """Return top . sums / bottom . sums of the rows' sums [K]; without `bottom` only the first."""
    sums = draws @ rows
    above = sums @ np.asarray(top, dtype=np.float64)
    if not bottom:
        return above
    below = sums @ np.asarray(bottom, dtype=np.float64)
    return np.where(below == 0, np.nan, above / below)


def precision_gain(draws: Any, rows: Any, place: Any) -> Any:
    """Return the share of correctly marked units among the marked ones, minus the share if all were marked. Rows:
    numbers of units that are correctly marked, that are marked, that should be marked, and of all.
    """
    right, marked, wanted, every = (draws @ rows).T
    return np.where(marked == 0, np.nan, right / marked - wanted / every)


def perplexity(draws: Any, rows: Any, place: Any) -> Any:
    """Return the perplexity. Rows: (nats, tokens)."""
    return np.array([math.exp(nats / tokens) if tokens else math.nan for nats, tokens in (draws @ rows).tolist()])


def krippendorff_alpha(draws: Any, rows: Any, place: Any) -> Any:
    """Return 1 - observed / expected disagreement of two values; NaN if all verdicts are the same. Rows: entries (yes,
    yes), (yes, no), (no, no) of the matrix of coincidences.
    """

    def alpha(both: float, mixed: float, neither: float) -> float:
        yes, no = both + mixed, neither + mixed
        return 1 - (yes + no - 1) * mixed / (yes * no) if yes * no else math.nan

    return np.array([alpha(*sums) for sums in (draws @ rows).tolist()])


def fleiss_kappa(draws: Any, rows: Any, place: Any) -> Any:
    """Return Fleiss' kappa; NaN if all votes are the same. Rows: (share of pairs that agree, 1, votes of each kind)."""

    def kappa(agreeing: float, items: float, *votes: float) -> float:
        if not items:
            return math.nan
        chance = agreement_by_chance(votes)
        return math.nan if chance == 1 else (agreeing / items - chance) / (1 - chance)

    return np.array([kappa(*sums) for sums in (draws @ rows).tolist()])


def agreement_by_chance(votes: Sequence[float]) -> float:
    """Return the probability that two random votes are the same."""
    return math.fsum((count / math.fsum(votes)) ** 2 for count in votes)


def bleu(draws: Any, rows: Any, place: Any, max_ngram: int) -> Any:
    """Return BLEU. Rows: length, length of the references, matched n-grams of each order, n-grams of each order
    (sacrebleu).
    """

    def score(sums: Sequence[float]) -> float:
        length, reference_length, *counts = map(round, sums)
        matched, total = counts[:max_ngram], counts[max_ngram:]
        of_counts = sacrebleu.BLEU.compute_bleu(
            matched, total, length, reference_length, smooth_method="exp", max_ngram_order=max_ngram
        )
        return float(of_counts.score)

    return np.array([score(sums) for sums in (draws @ rows).tolist()])


# -- values in an order ------------------------------------------------------------------------------------------------


def lower_tail(draws: Any, rows: Any, place: Any, share: float) -> Any:
    """Return the mean of the lowest `share` of the values (expected shortfall; the value on the edge counts partly)."""
    order = np.lexsort((place, rows[:, 0]))
    ordered, place = rows[order, 0], place[order]

    def tail(times: Any) -> float:
        room = share * times.sum()
        before = np.cumsum(times) - times
        taken = np.clip(room - before, 0, times)
        return float((taken * ordered).sum() / room) if room else math.nan

    return np.array([tail(times[place]) for times in draws])


def area_under_curve(draws: Any, rows: Any, place: Any) -> Any:
    """Return the area under the curve. Rows: (score, 1 for a positive or 0)."""
    rank, label = ranks(rows[:, 0]), rows[:, 1] > 0
    size = int(rank.max()) + 1 if len(rank) else 0
    return np.array([area(rank, label, times[place], size) for times in draws])


def ranks(scores: Any) -> Any:
    """Return dense ranks: equal scores have the same rank. Raises ValueError on NaN."""
    array = np.asarray(scores, dtype=np.float64)
    if np.isnan(array).any():
        raise ValueError("a score is NaN: wants numbers (leave missing ones out)")
    return np.unique(array, return_inverse=True)[1].reshape(-1)


def area(rank: Any, label: Any, times: Any, size: int) -> float:
    """Return the area under the curve if entry i counts `times[i]` times; NaN without both kinds."""
    positives = np.bincount(rank[label], times[label], minlength=size)
    negatives = np.bincount(rank[~label], times[~label], minlength=size)
    pairs = positives.sum() * negatives.sum()
    if pairs == 0:
        return math.nan
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / pairs)


OF_VALUES: dict[str, Callable[[Any], float]] = {
    "mean": lambda values: values.mean(),
    "min": lambda values: values.min(),
    "q1": lambda values: np.quantile(values, 0.25),
    "median": lambda values: np.median(values),
    "q3": lambda values: np.quantile(values, 0.75),
    "max": lambda values: values.max(),
}
"""Statistics of values, by name. Quartiles are interpolated linearly."""


def of_values(draws: Any, rows: Any, place: Any, of: str) -> Any:
    """Return `OF_VALUES[of]` of the values of the clusters that were drawn."""
    drawn = (np.repeat(rows[:, 0], times[place]) for times in draws)
    return np.array([OF_VALUES[of](own) if own.size else math.nan for own in drawn])


# -- fits --------------------------------------------------------------------------------------------------------------


def length_adjusted(draws: Any, rows: Any, place: Any, ridge: float) -> Any:
    """Return the win rate at equal length. Rows: (won: 0 to 1, difference of the lengths, weight)."""
    won, longer, weights = np.ascontiguousarray(rows.T)
    return rate_at_equal_length(won, longer, draws[:, place] * weights, ridge)


def elo_rating(draws: Any, rows: Any, place: Any, model: int, level: Sequence[int], ridge: float, rating: float) -> Any:
    """Return a rating in points: the anchor's rating plus the mean gap of a model to the models that have it. Rows:
    [M*M], points of each of the M models against each other.
    """
    return rating + POINTS_PER_NAT * _gaps(draws, rows, ridge)[:, model, list(level)].mean(-1)


def elo_difference(draws: Any, rows: Any, place: Any, model: int, other: int, ridge: float) -> Any:
    """Return the rating of a model minus that of another, in points. Rows: as in `elo_rating`."""
    return POINTS_PER_NAT * _gaps(draws, rows, ridge)[:, model, other]


def _gaps(draws: Any, rows: Any, ridge: float) -> Any:
    return _gaps_of_bytes(draws.astype(np.float64).tobytes(), rows.tobytes(), draws.shape, rows.shape[1], ridge)


@lru_cache(maxsize=1)
def _gaps_of_bytes(draws: bytes, rows: bytes, shape: tuple[int, int], pairs: int, ridge: float) -> Any:
    """Return the `gaps` [D,M,M] of draws. The results for the last draws are cached, since many numbers need the same."""
    points = np.frombuffer(draws).reshape(shape) @ np.frombuffer(rows).reshape(-1, pairs)
    models = math.isqrt(pairs)
    return gaps(points.reshape(shape[0], models, models), ridge)


STATISTICS: Mapping[str, Callable[..., Any]] = {
    statistic.__name__: statistic
    for statistic in (
        weighted_mean, quotient, precision_gain, perplexity, krippendorff_alpha, fleiss_kappa, bleu, lower_tail,
        area_under_curve, of_values, length_adjusted, elo_rating, elo_difference,
    )
}  # fmt: skip
