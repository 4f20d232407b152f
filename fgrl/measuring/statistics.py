"""Intervals: means, areas under the curve and paired differences, resampled by cluster.

Answers to one prompt are similar, so the prompt with all its answers is drawn with replacement (cluster bootstrap;
Davison and Hinkley 1997, section 3.8), and a difference of two models draws the same prompts for both. Intervals are
percentiles of the draws (Efron 1981). numpy and scipy are loaded at the first use.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fgrl.base import lazy
from fgrl.types import Record

named = lazy.load("fgrl.measuring.named_statistics")
np = lazy.load("numpy")
stats = lazy.load("scipy.stats")


class Estimate(Record):
    """Number with its interval. None = missing; `note` gives the reason."""

    mean: float | None
    """Value on all the data (a mean, a share, an area under the curve, or a difference of two of them)."""
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Number of values: answers, or tokens."""
    groups: int = 0
    """Number of clusters (prompts) that were resampled."""
    positives: int | None = None
    """Number of positives among `n` (areas under the curve only)."""
    note: str | None = None

    @property
    def changed(self) -> bool | None:
        """Return True if the interval of a difference excludes zero; None without an interval."""
        return None if self.low is None or self.high is None else self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Measured:
    """Number before resampling, as data: the name of a statistic, and the values that it is computed from. Each side of
    a difference is such a number.
    """

    clusters: tuple[Hashable, ...]
    """Resampled units, for example prompts."""
    statistic: str
    """Name in `named_statistics.STATISTICS`; see there for the rows and the parameters."""
    rows: Any
    """[R,K] values."""
    n: int
    """Number of values: answers, or tokens."""
    place: Any = None
    """[R]: the cluster of each row; None: one row for each cluster, in their order."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    positives: int | None = None
    missing: str | None = None
    """Reason for a missing value."""

    def __post_init__(self) -> None:
        if self.statistic not in named.STATISTICS:
            raise ValueError(
                f"statistic {self.statistic!r}: wants one of {', '.join(named.STATISTICS)}; a metric whose numbers are "
                "something else returns finished numbers from `measure`"
            )

    def of_draws(self, draws: Any) -> Any:
        """Return the values [D] in draws [D,G] of the clusters; NaN if a draw leaves the value undefined."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return named.STATISTICS[self.statistic](draws, self.rows, self.place, **self.parameters)


@dataclass(frozen=True, eq=False)
class Combined:
    """Numbers of the same clusters, in any order, combined in every draw."""

    parts: Sequence[Measured | Combined]
    how: Literal["mean", "difference"]
    n: int
    positives: int | None = None
    missing: str | None = None

    @property
    def clusters(self) -> tuple[Hashable, ...]:
        return self.parts[0].clusters

    def of_draws(self, draws: Any) -> Any:
        """Return the values, as `Measured`; draws are of the first part's clusters."""
        place = {name: position for position, name in enumerate(self.clusters)}
        orders = ([place[name] for name in part.clusters] for part in self.parts)
        values = [part.of_draws(draws[:, order]) for part, order in zip(self.parts, orders, strict=True)]
        with np.errstate(invalid="ignore"):
            return values[0] - values[1] if self.how == "difference" else sum(values) / len(values)


def weighted_mean(
    values: Sequence[float | None],
    clusters: Sequence[Hashable],
    weights: Sequence[float] | None = None,
    every: Sequence[Hashable] = (),
) -> Measured:
    """Return sum(weight * value) / sum(weight) over all values; None and NaN values are left out, but not their
    clusters.

    every: further clusters to resample, which may have no value; two sides of a difference need the same clusters. With
    `weights` = tokens of each answer and `values` = per-token means this is the mean over tokens. Raises ValueError if
    the lengths differ, a weight is negative, or a value is infinite.
    """
    weights = [1.0] * len(values) if weights is None else weights
    _check_lengths(values=values, clusters=clusters, weights=weights)
    names, index = clustered([*clusters, *every])
    sums, totals, count = [0.0] * len(names), [0.0] * len(names), 0
    for value, weight, cluster in zip(values, weights, index, strict=False):
        if value is None or math.isnan(value):
            continue
        if math.isinf(value) or not weight >= 0 or math.isinf(weight):
            raise ValueError(f"value {value} with weight {weight}: wants finite numbers and weights >= 0")
        sums[cluster] += weight * value
        totals[cluster] += weight
        count += weight > 0
    rows = np.array([sums, totals], dtype=np.float64).T
    return Measured(names, "weighted_mean", rows, count, missing=None if count else "no values")


def lower_tail_mean(values: Sequence[float | None], clusters: Sequence[Hashable], share: float) -> Measured:
    """Return the mean of the lowest `share` of the values (expected shortfall; the value on the edge counts partly).

    None and NaN values are left out, but not their clusters.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share {share}: wants more than 0 and at most 1")
    names, index = clustered(clusters)
    known = [
        (value, cluster)
        for value, cluster in zip(values, index, strict=True)
        if value is not None and not math.isnan(value)
    ]
    return _of_rows(names, "lower_tail", [(value,) for value, _ in known], [place for _, place in known], share=share)


def area_under_curve(
    scores: Sequence[float],
    positive: Sequence[bool],
    clusters: Sequence[Hashable],
    every: Sequence[Hashable] = (),
) -> Measured:
    """Return `auc` of clustered scores. Scores of one cluster are drawn together.

    every: as in `weighted_mean`.
    """
    _check_lengths(scores=scores, labels=positive, clusters=clusters)
    names, index = clustered([*clusters, *every])
    index = index[: len(scores)]
    named.ranks(scores)  # refuses NaN
    positives = sum(map(bool, positive))
    rows = [(score, float(label)) for score, label in zip(scores, positive, strict=True)]
    measured = _of_rows(names, "area_under_curve", rows, index)
    missing = "no positives" if positives == 0 else "no negatives" if positives == len(rows) else None
    return replace(measured, positives=positives, missing=missing)


PART_OF_WHOLE: Mapping[str, Any] = {"top": (1, 0), "bottom": (0, 1)}
"""Parameters of the quotient of two sums."""


def of_sums(
    rows: Sequence[Sequence[float] | None],
    clusters: Sequence[Hashable],
    statistic: str = "quotient",
    parameters: Mapping[str, Any] = PART_OF_WHOLE,
    every: Sequence[Hashable] = (),
) -> Measured:
    """Return a statistic of the rows' sums [K], for numbers that are not a mean of answers: F1 of counts, BLEU of a
    corpus.

    Each draw sums the rows of the clusters that it drew, so the interval is of the statistic itself. A row that is None
    is left out, but not its cluster. Raises ValueError if the lengths differ.
    """
    _check_lengths(rows=rows, clusters=clusters)
    names, index = clustered([*clusters, *every])
    known = [(cluster, row) for cluster, row in zip(index, rows, strict=False) if row is not None]
    totals = np.zeros((len(names), len(known[0][1]) if known else 0))
    for cluster, row in known:
        totals[cluster] += np.asarray(row, dtype=np.float64)
    if not known:
        return Measured(names, statistic, totals, 0, parameters=parameters, missing="no values")
    measured = Measured(names, statistic, totals, len(known), parameters=parameters)
    return measured if value_of(measured) is not None else replace(measured, missing="undefined on all the data")


OVERLAPS = {
    "precision": ((1, 0, 0), (0, 1, 0)),
    "recall": ((1, 0, 0), (0, 0, 1)),
    "f1": ((2, 0, 0), (0, 1, 1)),
    "overlap_index": ((1, 0, 0), (-1, 1, 1)),
}
"""Overlaps of two sets, as quotients of weighted sums of counts: in both, in the first, in the second."""


def overlaps(
    rows: Sequence[Sequence[float] | None],
    clusters: Sequence[Hashable],
    names: Sequence[str] = ("precision", "recall", "f1"),
) -> dict[str, Measured]:
    """Return numbers of `OVERLAPS`. rows: the three counts; the first set is graded, the second is the reference."""
    weights = ((name, *OVERLAPS[name]) for name in names)
    return {name: of_sums(rows, clusters, parameters={"top": top, "bottom": bottom}) for name, top, bottom in weights}


def of_values(
    values: Sequence[float], clusters: Sequence[Hashable], every: Sequence[Hashable], of: str, missing: str
) -> Measured:
    """Return `OF_VALUES[of]` of the values of the drawn clusters in each draw. every: all clusters, with and without
    values. missing: reason for a missing number if there are no values.
    """
    names, index = clustered([*clusters, *every])
    return _of_rows(names, "of_values", [(value,) for value in values], index[: len(values)], missing, of=of)


def length_adjusted(
    wins: Sequence[float | None],
    lengths: Sequence[float],
    clusters: Sequence[Hashable],
    ridge: float,
    weights: Sequence[float] | None = None,
) -> Measured:
    """Return the win rate at equal length (see `length_adjusted.py`).

    wins: in 0..1, None is missing; lengths: the length of the model's answer minus the other's, in characters; weights:
    weight of each comparison (None: all equal).
    """
    names, index = clustered(clusters)
    weights = [1.0] * len(wins) if weights is None else weights
    known = [
        ((win, length, weight), place)
        for win, length, weight, place in zip(wins, lengths, weights, index, strict=True)
        if win is not None
    ]
    return _of_rows(names, "length_adjusted", [row for row, _ in known], [place for _, place in known], ridge=ridge)


def averaged(parts: Sequence[Measured]) -> Combined:
    """Return the mean of a statistic over several runs (seeds) with the same questions: each draw takes the same
    clusters of all.

    For means with the same number of values in each run, it is the mean of all values together. For a statistic over
    several answers (an area under the curve, F1) it is still the mean of the runs' own numbers, which are never mixed.
    It is missing if it is missing in a run. Raises ValueError if there is no part, or if the clusters differ.
    """
    if not parts:
        raise ValueError("nothing to take the mean of")
    if any(set(part.clusters) != set(parts[0].clusters) for part in parts):
        raise ValueError("a mean over runs needs the same prompts in each")
    positives = [part.positives for part in parts]
    return Combined(
        parts,
        "mean",
        sum(part.n for part in parts),
        None if None in positives else sum(filter(None, positives)),
        next((part.missing for part in parts if part.missing), None),
    )


def value_of(measured: Measured | Combined) -> float | None:
    """Return the value on all the data; None if it is missing or undefined."""
    if measured.missing:
        return None
    value = float(measured.of_draws(np.ones((1, len(measured.clusters)), dtype=np.int64))[0])
    return None if math.isnan(value) else value


def estimate(measured: Measured | Combined, *, resamples: int = 2000, level: float = 0.95, seed: int = 0) -> Estimate:
    """Return the value on all the data, and the percentile interval of `resamples` draws of clusters."""
    if not 0 < level < 1:
        raise ValueError(f"level {level}: wants a number between 0 and 1")
    groups = len(measured.clusters)
    known: dict[str, Any] = {"n": measured.n, "groups": groups, "positives": measured.positives}
    if measured.missing:
        return Estimate(mean=None, note=measured.missing, **known)
    known["mean"] = float(measured.of_draws(np.ones((1, groups), dtype=np.int64))[0])
    if groups < 2:
        return Estimate(note="one prompt only: no interval", **known)
    drawn = np.concatenate([measured.of_draws(draws) for draws in _draws(groups, resamples, seed)])
    defined = drawn[~np.isnan(drawn)]
    notes = []
    if defined.size < drawn.size:
        notes.append(f"undefined in {drawn.size - defined.size} of {drawn.size} draws, which the interval leaves out")
    ends = [_quantile(defined, share) for share in ((1 - level) / 2, (1 + level) / 2)] if defined.size else [None, None]
    for end, value, infinity in zip(("lower", "upper"), ends, (-np.inf, np.inf), strict=True):
        if defined.size and value is None:
            notes.append(f"no {end} end: infinite in {(defined == infinity).sum()} of {drawn.size} draws")
    if notes:
        known["note"] = "; ".join(notes)
    return Estimate(low=ends[0], high=ends[1], **known)


def difference(
    first: Measured | Combined,
    second: Measured | Combined,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Return `first - second`, paired: both sides use the same draws of the clusters, which must be the same on both
    sides.

    Raises ValueError if they are not.
    """
    if set(first.clusters) != set(second.clusters):
        odd = sorted(map(str, set(first.clusters) ^ set(second.clusters)))
        raise ValueError(f"a paired difference needs the same prompts on both sides; only on one: {', '.join(odd[:3])}")
    both = Combined((first, second), "difference", min(first.n, second.n), missing=first.missing or second.missing)
    return estimate(both, resamples=resamples, level=level, seed=seed)


def combined(parts: Sequence[tuple[Hashable, float, Estimate]]) -> Estimate:
    """Return the weighted sum of estimates whose draws are no longer known. parts: (source, weight, estimate); a weight
    of -1 subtracts.

    The distance of each bound is the combined distance of the parts' bounds (Zou and Donner 2008, "Construction of
    confidence limits about effect measures"): distances from one source are added, since its numbers may be of the same
    answers; sources are independent, so the squares of their distances are added. It is missing if a part is, and has
    no interval if a part has none.
    """
    n = sum(estimate.n for _source, _weight, estimate in parts)
    mean = 0.0
    distances: dict[Hashable, tuple[float, float]] = {}
    whole = True
    for source, weight, estimate in parts:
        if estimate.mean is None:
            return Estimate(mean=None, n=n, note=estimate.note or "a part is missing")
        mean += weight * estimate.mean
        if estimate.low is None or estimate.high is None:
            whole = False
            continue
        reach = abs(weight) * (estimate.mean - estimate.low), abs(weight) * (estimate.high - estimate.mean)
        below, above = reach if weight > 0 else reach[::-1]
        distances[source] = distances.get(source, (0.0, 0.0))[0] + below, distances.get(source, (0.0, 0.0))[1] + above
    if not whole:
        return Estimate(mean=mean, n=n, note="a part has no interval")
    low, high = (math.hypot(*side) for side in zip(*distances.values(), strict=True))
    return Estimate(mean=mean, low=mean - low, high=mean + high, n=n)


def auc(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return P(score of a positive > score of a negative) + P(equal) / 2 (Mann and Whitney 1947); None without both
    kinds.

    O(N log N). Raises ValueError on a NaN score.
    """
    _check_lengths(scores=scores, labels=positive)
    label = np.asarray(positive, dtype=bool)
    if label.all() or not label.any():
        return None
    rank = named.ranks(scores)
    return float(named.area(rank, label, np.ones(len(label), dtype=np.int64), int(rank.max()) + 1))


def student(values: Sequence[float], *, level: float = 0.95) -> Estimate:
    """Return the mean of independent values (one per seed) with Student's t interval: mean +- t_{n-1} s / sqrt(n), s
    the sample's standard deviation (n - 1). One value has no interval. Raises ValueError for a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level {level}: wants a number between 0 and 1")
    n = len(values)
    if n == 0:
        return Estimate(mean=None, note="no values")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean=mean, n=1, groups=1, note="one value only: no interval")
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * error
    return Estimate(mean=mean, low=mean - half, high=mean + half, n=n, groups=n)


def clustered(clusters: Sequence[Hashable]) -> tuple[tuple[Hashable, ...], list[int]]:
    """Return the distinct clusters in order of first appearance, and the index of the cluster of each entry."""
    place: dict[Hashable, int] = {}
    index = [place.setdefault(cluster, len(place)) for cluster in clusters]
    return tuple(place), index


# ----------------------------------------------------------------------------------------------------------------------


def _quantile(values: Any, share: float) -> float | None:
    """Return a quantile, linear between two values; None if one of them is infinite."""
    below, above = (np.quantile(values, share, method=method) for method in ("lower", "higher"))
    if np.isinf([below, above]).any():
        return None
    return float(below if below == above else np.quantile(values, share))


def _check_lengths(**columns: Sequence[Any]) -> None:
    """Raise ValueError if the columns have different lengths."""
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{len(column)} {name}" for name, column in columns.items())
        raise ValueError(f"{lengths}: wants as many of each")


def _of_rows(
    names: tuple[Hashable, ...], statistic: str, rows: Sequence[Sequence[float]], place: Sequence[int],
    missing: str = "no values", **parameters: Any,
) -> Measured:  # fmt: skip
    """Return a statistic of rows. A cluster may have any number of rows."""
    array = np.array(rows, dtype=np.float64).reshape(-1, len(rows[0]) if rows else 1)
    where = np.array(place, dtype=np.int64)
    return Measured(names, statistic, array, len(rows), where, parameters, missing=None if rows else missing)


def _draws(groups: int, resamples: int, seed: int) -> Iterator[Any]:
    """Yield blocks [D,G] with the number of times that each cluster is drawn when G clusters are drawn with
    replacement.
    """
    generator = np.random.default_rng(seed)
    block = max(1, 2**22 // groups)
    for done in range(0, resamples, block):
        yield generator.multinomial(groups, np.full(groups, 1 / groups), size=min(block, resamples - done))
