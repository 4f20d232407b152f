"""Samples and pairs as rows of token ids to train on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from torch import Tensor

from fgrl import rollouts
from fgrl.errors import DataError
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
    """Add the responses to one prompt. Too long prompts lose their beginning, too long responses their end, which is then an
    end-of-sequence token."""
    whole = rollouts.encode_prompt(model.tokenizer, prompt)
    prompt_ids = rollouts.cut_prompt(whole, model.tokenizer, max_prompt)
    room = max(1, max_tokens - len(prompt_ids))
    encoded = [rollouts.encode_response(model.tokenizer, text, model.end_id) for text in responses]
    cut = [rollouts.cut_response(ids, room, model.end_id) for ids in encoded]
    lost = [(len(whole) - len(prompt_ids), max(0, len(ids) - room)) for ids in encoded]
    table.add(prompt_ids, *cut, eos_ids=model.eos_ids, lost=lost)
    table.prompt_digests.extend(trained_prompts.digests(prompt))


def pairs(
    preferences: Iterable[Pair],
    model: Any,
    max_prompt: int,
    max_tokens: int,
    columns: Mapping[str, Column] | None = None,
) -> TokenTable:
    """Rows 2i are chosen, 2i+1 rejected. `columns` declares the columns that will be added."""
    table = TokenTable(columns)
    for pair in preferences:
        add(table, model, pair.prompt, (pair.chosen, pair.rejected), max_prompt, max_tokens)
    return fitting(table, model)


def fitting(table: TokenTable, model: Any) -> TokenTable:
    """The table. Raises `DataError` when the model has no positions for its longest row."""
    lengths = map(sum, zip(table.lengths("prompt"), table.lengths(), strict=True))
    model.check_length(max(lengths, default=0), "set `max_tokens` to cut responses, and `max_prompt_tokens` below it")
    return table


def target(sample: Sample) -> str:
    """The text to train on: the chosen response, else the first reference, else the only response."""
    if sample.chosen is None and sample.reference is not None:
        return sample.reference if isinstance(sample.reference, str) else sample.reference[0]
    response = sample.chosen_response
    if response is None:
        raise DataError(f"sample {sample.id} has neither a response nor a reference to train on")
    return response.text


def units(stage: Any, model: Any, limit: int | None = None) -> RowGroups:
    """The stage's data as units: [chosen, rejected] for pairs, [row] for samples."""
    if stage.algorithm.data == "pairs":
        preferences = islice(stage.data.pairs(), limit)
        declared = stage.algorithm.columns
        return RowGroups(pairs(preferences, model, stage.max_prompt_tokens, stage.max_tokens, declared), each=2)
    table = TokenTable(stage.algorithm.columns)
    columns: list[Mapping[str, Tensor]] = []
    for sample in islice(stage.data.read(), limit):
        encoded = stage.algorithm.encode(sample, model, stage.max_tokens)
        if encoded is not None:
            if encoded.response:  # an empty response has nothing to learn from
                table.add(encoded.prompt, encoded.response, eos_ids=model.eos_ids)
                table.prompt_digests.extend(trained_prompts.digests(sample.prompt))
                columns.append(encoded.columns)
            continue
        add(table, model, sample.prompt, [target(sample)], stage.max_prompt_tokens, stage.max_tokens)
    for row, values in zip(table, columns, strict=bool(columns)):
        row["columns"].update(values)
    return RowGroups(fitting(table, model), each=1)
