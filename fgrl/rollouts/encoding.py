"""Samples and pairs as rows of token ids to train on."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.rollouts import trained_prompts
from fgrl.rollouts.rows import RowGroups, TokenTable
from fgrl.types import Column, Message, Pair, Sample


def add(
    table: TokenTable,
    model: Any,
    prompt: str | list[Message],
    responses: Iterable[str],
    max_prompt: int,
    max_tokens: int,
) -> None:
    """Add the responses to one prompt. Too long prompts lose their beginning, too long responses their end, which is
    then an end-of-sequence token.
    """
    read = rollouts.encode_prompt(model.tokenizer, prompt, max_prompt)
    room = max(1, max_tokens - len(read))
    encoded = [rollouts.encode_response(model.tokenizer, text, model.end_id) for text in responses]
    cut = [rollouts.cut_response(ids, room, model.end_id) for ids in encoded]
    lost = [(read.lost, max(0, len(ids) - room)) for ids in encoded]
    table.add(read.token_ids, *cut, eos_ids=model.eos_ids, lost=lost)
    table.prompt_digests.extend(trained_prompts.digests(prompt))


def pairs(
    preferences: Iterable[Pair],
    model: Any,
    max_prompt: int,
    max_tokens: int,
    columns: Mapping[str, Column] | None = None,
    reads: Collection[str] = (),
) -> TokenTable:
    """Return a table in which rows 2i are chosen and rows 2i+1 rejected. `columns` declares the columns that will be
    added, `reads` names the columns that come with the pairs (`carried`).
    """
    table = TokenTable(columns)
    given: list[tuple[str, Mapping[str, Any]]] = []
    for pair in preferences:
        add(table, model, pair.prompt, (pair.chosen, pair.rejected), max_prompt, max_tokens)
        given += [(f"pair {pair.id}, {side}", of_side(pair.meta, side)) for side in SIDES] if reads else []
    carry(table, given, reads)
    return fitting(table, model)


SIDES = ("chosen", "rejected")


def of_side(meta: Mapping[str, Any], side: str) -> dict[str, Any]:
    """Return the entries of a pair's `meta` for one of its responses: {chosen: ..., rejected: ...} is divided, other
    entries apply to both.
    """
    divided = {name: isinstance(value, Mapping) and set(value) == set(SIDES) for name, value in meta.items()}
    return {name: value[side] if divided[name] else value for name, value in meta.items()}


def carry(table: TokenTable, given: Sequence[tuple[str, Mapping[str, Any]]], reads: Collection[str]) -> None:
    """Set the columns `reads` of all rows from the values that came with each row. given: place of the row, and the
    values by name.
    """
    for row, (where, values) in zip(table, given, strict=bool(given)):
        for name in sorted(reads):
            if name not in values:
                raise DataError(
                    f'{where}: its meta has no "{name}", which the algorithm reads: keep it with `columns: {{meta: [{name}]}}` of the '
                    "reader, or have an annotator or a pair builder write it"
                )
            length, lost = len(row["response"]), row["lost"][1]
            row["columns"][name] = carried(values[name], table.declared[name], length, lost, f'{where}: meta "{name}"')


def carried(value: Any, declared: Column, length: int, lost: int, where: str) -> Tensor:
    """Return a value of a sample or a pair as a column: a number, or a list of numbers if the column has one per token.

    length: number of tokens of the response in training, including the end-of-sequence token, after `lost` tokens were
    cut off. The list is about the whole response. If it has no value for the end-of-sequence token, this token has the
    declared fill.
    """
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        raise DataError(f"{where}: wants numbers, got {str(value)[:80]}")
    if infinite := [number for number in numbers if not math.isfinite(number)]:
        raise DataError(f"{where}: wants finite numbers, got {infinite[0]}")
    if not declared.axes:
        if isinstance(value, list):
            raise DataError(f"{where}: wants a number, got a list of {len(value)}")
        return torch.tensor(float(value))
    whole = length + lost
    if not isinstance(value, list) or len(value) not in (whole, whole - 1):
        got = f"{len(value)}" if isinstance(value, list) else f"{value}"
        raise DataError(
            f"{where}: wants a list of one number per token of the response, {whole} (or {whole - 1} without its end), got {got}"
        )
    kept = [float(number) for number in [*value, declared.fill][:length]]
    if lost:  # the last token was overwritten by an end-of-sequence token
        kept[-1] = declared.fill
    return torch.tensor(kept)


def fitting(table: TokenTable, model: Any) -> TokenTable:
    """Return the table. Raises `DataError` if the model has no positions for its longest row."""
    lengths = map(sum, zip(table.lengths("prompt"), table.lengths(), strict=True))
    model.check_length(max(lengths, default=0), "set `max_tokens` to cut responses, and `max_prompt_tokens` below it")
    return table


def target(sample: Sample) -> str:
    """Return the text to train on: the chosen response, else the first reference, else the only response."""
    if sample.chosen is None and sample.reference is not None:
        return sample.reference if isinstance(sample.reference, str) else sample.reference[0]
    response = sample.chosen_response
    if response is None:
        raise DataError(f"sample {sample.id} has neither a response nor a reference to train on")
    return response.text


def units(stage: Any, model: Any, limit: int | None = None) -> RowGroups:
    """Return the stage's data as units: [chosen, rejected] for pairs, [row] for samples."""
    if stage.algorithm.data == "pairs":
        preferences = islice(stage.data.pairs(), limit)
        algorithm = stage.algorithm
        table = pairs(
            preferences, model, stage.max_prompt_tokens, stage.max_tokens, algorithm.columns, algorithm.reads()
        )
        return RowGroups(table, each=2)
    reads = stage.algorithm.reads()
    given: list[tuple[str, Mapping[str, Any]]] = []
    table = TokenTable(stage.algorithm.columns)
    columns: list[Mapping[str, Tensor]] = []
    for sample in islice(stage.data.read(), limit):
        encoded = stage.algorithm.encode(sample, model, stage.max_tokens)
        if encoded is not None:
            if encoded.response:  # an empty response has nothing to learn from
                table.add(encoded.prompt, encoded.response, eos_ids=model.eos_ids)
                table.prompt_digests.extend(trained_prompts.digests(sample.prompt))
                columns.append(encoded.columns)
                given += [(f"sample {sample.id}", sample.meta)] if reads else []
            continue
        given += [(f"sample {sample.id}", sample.meta)] if reads else []
        add(table, model, sample.prompt, [target(sample)], stage.max_prompt_tokens, stage.max_tokens)
    for row, values in zip(table, columns, strict=bool(columns)):
        row["columns"].update(values)
    carry(table, given, reads)
    return RowGroups(fitting(table, model), each=1)
