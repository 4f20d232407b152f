"""Columns: values with one row per response, each declared once, at its field.

The declaration decides how the column is checked, padded, selected, gathered over processes and passed to the loss. A
reward or an algorithm adds a column with a subclass of `Rewards` or `Advantages`:

    @dataclass
    class WeightedRewards(Rewards):
        weight: Tensor = field(kw_only=True, metadata={"column": per_token(fill=1.0)})

and reads it in its loss as `batch.columns["weight"]`. A field without a declaration is an error. Columns that only
carry numbers need no subclass: `Rewards(..., columns={"weight": weight})`, tensors [B] or [B,T].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fgrl.base import lazy

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")

Axis = Literal["token", "prompt_token", "criterion", "own", "own_left"]
ON_THE_LEFT = ("prompt_token", "own_left")
"""Axes with padding on the left."""


@dataclass(frozen=True)
class Column:
    """Column with one row per response, and the given axes after it."""

    axes: tuple[Axis, ...] = ()
    fill: float = 0.0
    """Value of padding: beyond the end of a response, before the beginning of a prompt."""
    absent: float = math.nan
    """Value of criteria that other responses have but this one does not."""

    def check(self, name: str, value: Any) -> None:
        """Raise TypeError for a value that does not fit the declaration. None is accepted, and so is a list in place of
        [B].
        """
        if value is None or (isinstance(value, list) and not self.axes):
            return
        declared = f"a tensor [{', '.join(('response', *self.axes))}] is declared"
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name}: {declared}, got {type(value).__name__}")
        if value.ndim != 1 + len(self.axes):
            raise TypeError(f"{name}: {declared}, got the shape {list(value.shape)}")
        exact = value.dtype.is_floating_point or float(torch.tensor(self.fill).to(value.dtype)) == self.fill
        if self.axes and not exact:
            raise TypeError(f"{name}: {value.dtype} cannot hold the declared fill {self.fill}")

    def take(self, value: Any, rows: Tensor) -> Any:
        """Return the rows with these indices, in their order."""
        if value is None:
            return None
        return [value[i] for i in rows.tolist()] if isinstance(value, list) else value[rows.to(value.device)]

    def concatenate(self, values: Sequence[Any], counts: Sequence[int]) -> Any:
        """Return the rows of several parts, padded to common widths. Raises ValueError if only some of the parts have a
        value.
        """
        if all(value is None for value in values):
            return None
        if any(value is None for value in values):
            raise ValueError("only some of the parts have a value")
        if isinstance(values[0], list):
            return [item for value in values for item in value]
        widths = [max(value.shape[1 + axis] for value in values) for axis in range(len(self.axes))]
        return torch.cat([self.widen(value, widths) for value in values])

    def widen(self, value: Tensor, widths: Sequence[int]) -> Tensor:
        """Return a value [B,...] padded to these widths of its axes."""
        for dim in range(len(self.axes), 0, -1):  # the criteria last: an absent one has no value for any token
            axis, gap = self.axes[dim - 1], list(value.shape)
            gap[dim] = widths[dim - 1] - value.shape[dim]
            padding = value.new_full(gap, self.absent if axis == "criterion" else self.fill)
            value = torch.cat([padding, value] if axis in ON_THE_LEFT else [value, padding], dim)
        return value

    def cut(self, value: Tensor, prompt_mask: Tensor, mask: Tensor) -> Tensor:
        """Return a value [B,...] cut to the widths of `prompt_mask` [B,P'] and `mask` [B,T'], with `fill` in every
        masked place.
        """
        fill = torch.full((), self.fill, device=value.device).to(value.dtype)
        if "token" in self.axes:
            real = mask if value.ndim == 2 else mask[:, None]
            return torch.where(real, value[..., : mask.shape[1]], fill)
        if "prompt_token" in self.axes:
            return torch.where(prompt_mask, value[:, value.shape[1] - prompt_mask.shape[1] :], fill)
        return value

    def stack(self, rows: Sequence[Tensor], length: int) -> Tensor:
        """Return the values of single responses as one tensor: [N], or [N,length]. Each value is as long as its
        response, or as it is.
        """
        if not self.axes:
            return torch.stack(list(rows))
        if self.axes[0] in ("own", "own_left"):
            return self.concatenate([row[None] for row in rows], [1] * len(rows))  # type: ignore[no-any-return]
        stacked = torch.full((len(rows), length), self.fill, dtype=rows[0].dtype)
        for i, row in enumerate(rows):
            stacked[i, : len(row)] = row
        return stacked


@dataclass(frozen=True)
class Shared:
    """One value for all rows together."""

    merge: Callable[[Sequence[Any], Sequence[int]], Any] | None = None
    """Function that computes the value of several parts from their values and their numbers of rows; None if parts
    cannot be combined.
    """

    def check(self, name: str, value: Any) -> None:
        """Raise TypeError for a tensor."""
        if isinstance(value, torch.Tensor):
            raise TypeError(
                f"{name}: a tensor is declared as one value for all rows; use per_token(fill=...) or another column"
            )

    def take(self, value: Any, rows: Tensor) -> Any:
        return value

    def concatenate(self, values: Sequence[Any], counts: Sequence[int]) -> Any:
        if self.merge is None:
            raise TypeError("parts cannot be put together")
        return self.merge(values, counts)


@dataclass(frozen=True)
class Named:
    """Mapping of tensors [B] and [B,T] by name; the value beyond the end of each response is 0."""

    def column(self, value: Tensor) -> Column:
        """Return the declaration of one of the tensors."""
        return per_token(fill=0) if value.ndim == 2 else per_response()

    def check(self, name: str, value: Any) -> None:
        """Raise TypeError for anything but tensors [B] and [B,T] by name."""
        if not isinstance(value, Mapping):
            raise TypeError(f"{name}: a mapping of tensors by name is declared, got {type(value).__name__}")
        for key, item in value.items():
            if not isinstance(item, torch.Tensor) or item.ndim not in (1, 2):
                got = f"the shape {list(item.shape)}" if isinstance(item, torch.Tensor) else type(item).__name__
                raise TypeError(f"{name}[{key!r}]: wants a tensor [response] or [response, token], got {got}")

    def take(self, value: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
        """Return the rows with these indices, in their order."""
        return {key: item[rows.to(item.device)] for key, item in value.items()}

    def concatenate(self, values: Sequence[Mapping[str, Tensor]], counts: Sequence[int]) -> dict[str, Tensor]:
        """Return the rows of several parts, padded to common widths. Raises ValueError if the parts have different
        columns.
        """
        if any(value.keys() != values[0].keys() for value in values):
            raise ValueError(f"the parts have different columns: {', '.join(sorted(set().union(*values)))}")
        return {
            key: self.column(item).concatenate([value[key] for value in values], counts)
            for key, item in values[0].items()
        }


class NamedTensors(dict[str, Any]):
    """Columns by name, with a helpful error if one is missing."""

    def __missing__(self, name: str) -> Any:
        known = ", ".join(sorted(self)) or "none"
        raise KeyError(
            f'there is no column "{name}"; there are: {known}. An algorithm declares the columns of the rewards that it reads in '
            "`reads()`, and what of the rollout it needs in `needs()`; a reward declares the columns that it fills in `fills()`"
        )


def named() -> Named:
    """Return a declaration of tensors [B] and [B,T] by name."""
    return Named()


def per_response() -> Column:
    """Return a declaration of a tensor [B], or a list with one item per response."""
    return Column()


def per_token(*, fill: float) -> Column:
    """Return a declaration of a tensor [B,T]; the value beyond the end of each response is `fill`."""
    return Column(("token",), fill)


def per_prompt_token(*, fill: float) -> Column:
    """Return a declaration of a tensor [B,P]; the value before the beginning of each prompt is `fill`."""
    return Column(("prompt_token",), fill)


def per_row(*, fill: float, side: Literal["left", "right"] = "right") -> Column:
    """Return a declaration of a tensor [B,W] of any width, such as the ids of another prompt; shorter rows are padded
    with `fill` on `side`.
    """
    return Column(("own_left" if side == "left" else "own",), fill)


def per_criterion() -> Column:
    """Return a declaration of a tensor [B,C]; NaN if the response does not have the criterion."""
    return Column(("criterion",))


def per_criterion_token(*, fill: float) -> Column:
    """Return a declaration of a tensor [B,C,T]; NaN if the response does not have the criterion, `fill` beyond the end
    of each response.
    """
    return Column(("criterion", "token"), fill)


def of_all_rows(merge: Callable[[Sequence[Any], Sequence[int]], Any] | None = None) -> Shared:
    """Return a declaration of one value for all rows together, as for metrics; see `Shared.merge`."""
    return Shared(merge)
