"""Samples of several readers: one after the other, or drawn in given proportions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.data.sliced_reader import SlicedReader
from fgrl.data.system_prompt import SystemPrompt
from fgrl.kinds import Reader
from fgrl.registry import alternatives, register
from fgrl.types import Pair, Sample

R = TypeVar("R", Sample, Pair)


@register("mixed")
class Mixed(SlicedReader, SystemPrompt):
    """Samples or pairs of several readers, each with the name of its source.

        data:
          name: mixed
          of:
            chat: {name: jsonl, path: chat.jsonl, format: prompts, shuffle_seed: 0}
            math: {name: jsonl, path: math.jsonl, format: prompts, shuffle_seed: 0}
          weights: {chat: 3, math: 1}

    Without `weights` all rows are read, one reader after the other. With weights, rows are drawn at random in these
    proportions, and each reader's own rows stay in order. The draw depends only on `mixing_seed` and on the numbers of
    rows.

    The id of a sample begins with the name (`chat/17`), and its `meta` has the name in the entry that `label` names.
    `skip`, `limit` and `shuffle_seed` apply to all samples together. (For responses of several stages to the same
    prompts, use `merged`.)
    """

    of: Annotated[dict[str, Reader], Field(min_length=1)]
    """Readers, by the name of their source."""
    weights: dict[str, Annotated[float, Field(gt=0)]] | None = None
    """Relative frequency of each reader, by name: {chat: 3, math: 1} is the same as {chat: 0.75, math: 0.25}. null: all
    rows, one reader after the other.
    """
    until: Literal["first_exhausted", "all_exhausted"] = "first_exhausted"
    """End of the draw, with `weights`: when one reader has no rows left, or when every reader has given all of its rows
    at least once. In the second case, a reader without rows left starts again; the ids of repeated rows end with the
    number of the pass (`math/17#2`).
    """
    mixing_seed: int = 0
    """Seed of the draw, with `weights`."""
    label: str = "domain"
    """Entry of `meta` that stores the name of the source."""

    @model_validator(mode="after")
    def _weights_of_readers(self) -> Mixed:
        if self.weights is None:
            for name in ("until", "mixing_seed"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name}: goes with `weights`, and there are none")
            return self
        for name in self.weights:
            if name not in self.of:
                raise ValueError(f'weights: no reader is called "{name}"; {alternatives(name, list(self.of))}')
        for name in self.of:
            if name not in self.weights:
                raise ValueError(f'weights: "{name}" has none; leave the reader out under `of`, or give it a weight')
        return self

    def read(self) -> Iterator[Sample]:
        return self._mixed({name: list(reader.read()) for name, reader in self.of.items()})

    def pairs(self) -> Iterator[Pair]:
        return self._mixed({name: list(reader.pairs()) for name, reader in self.of.items()})

    def _mixed(self, rows: Mapping[str, Sequence[R]]) -> Iterator[R]:
        """Return the rows of all readers in their order. Raise `DataError` for a reader without rows."""
        empty = next((name for name, own in rows.items() if not own), None)
        if empty is not None and self.weights is not None:
            raise DataError(f'mixed: the reader "{empty}" has no rows to draw from')
        order = self._order({name: len(own) for name, own in rows.items()})
        chosen = [order[number] for number in self.chosen(len(order), "mixed")]
        taken = Counter(name for name, _number in chosen)
        of_each = ", ".join(f"{taken[name]:,} of {name} (which has {len(own):,})" for name, own in rows.items())
        self.say(f"mixed: {len(chosen):,} rows: {of_each}")
        return (self._named(rows[name], name, number) for name, number in chosen)

    def _named(self, rows: Sequence[R], name: str, number: int) -> R:
        """Return row `number` of a reader, counted across its passes, with the reader's name."""
        again, place = divmod(number, len(rows))
        row = rows[place]
        key = f"{name}/{row.id}" + (f"#{again + 1}" if again else "")
        return self.with_system(row.model_copy(update={"id": key, "meta": {**row.meta, self.label: name}}))

    def _order(self, counts: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return reader and number of every row, before `skip` and `limit`; with `weights` no count is 0."""
        if self.weights is None:
            return [(name, number) for name, count in counts.items() for number in range(count)]
        generator, names = random.Random(self.mixing_seed), list(self.of)
        weights = [self.weights[name] for name in names]
        order: list[tuple[str, int]] = []
        taken: Counter[str] = Counter()
        needed = 1 if self.until == "first_exhausted" else len(names)
        exhausted: set[str] = set()
        while len(exhausted) < needed:
            name = generator.choices(names, weights)[0]
            order.append((name, taken[name]))
            taken[name] += 1
            if taken[name] == counts[name]:
                exhausted.add(name)
        return order
