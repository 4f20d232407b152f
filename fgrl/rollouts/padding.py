"""Token ids as padded tensors, parts of such tensors, and passes over more rows than the model reads at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.rollouts import token_budget
from fgrl.rollouts.text import Ids, ids_of
from fgrl.types import DrawnResponse, Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
    from fgrl.feedback.llm import together
    from fgrl.models import LanguageModel
else:
    models = lazy.load("fgrl.models")
    together = lazy.load("fgrl.feedback.llm.together")
    torch = lazy.load("torch")


def pad(
    prompts: Sequence[Ids],
    responses: Sequence[Ids],
    pad_id: int,
    eos_ids: Iterable[int],
    min_new_tokens: int = 0,
) -> Tokens:
    """Return prompts [B,P] padded on the left and responses [B,T] padded on the right.

    `turn` is that of a `DrawnResponse`, and 0 for the tokens of other responses. `eos` marks a response's last token if
    it is one of `eos_ids`; padding with the same id is never marked. `no_end` marks the first `min_new_tokens` tokens
    of each response, if it was drawn with such a bound.
    """
    ends = set(eos_ids)
    prompt_ids, prompt_mask = pad_prompts(prompts, pad_id)
    written = [ids_of(response) for response in responses]
    response_ids, mask = _padded(written, pad_id, left=False)
    eos = torch.zeros_like(mask)
    for row, ids in enumerate(written):
        if len(ids) and ids[-1] in ends:
            eos[row, len(ids) - 1] = True
    no_end = mask & (torch.arange(mask.shape[1]) < min_new_tokens) if min_new_tokens else None
    turns = [getattr(each, "turn", None) or [0] * len(each) for each in responses]
    turn, _mask = _padded(turns, -1, left=False)
    return Tokens(prompt_ids, prompt_mask, response_ids, mask, eos, no_end=no_end, turn=turn)


def pad_rows(rows: Sequence[Mapping[str, Any]], pad_id: int, eos_ids: Iterable[int]) -> Tokens:
    """Return `pad` of rows with a "prompt" and a "response"."""
    return pad([row["prompt"] for row in rows], [row["response"] for row in rows], pad_id, eos_ids)


def pad_responses(model: Any, responses: Sequence[DrawnResponse], min_new_tokens: int = 0) -> Tokens:
    """Return `pad` of responses to their own prompts."""
    return pad([each.prompt for each in responses], responses, model.pad_id, model.eos_ids, min_new_tokens)


def pad_prompts(prompts: Sequence[Ids], pad_id: int, width: int = 1) -> tuple[Tensor, Tensor]:
    """Return prompts [B,P] padded on the left to at least `width` tokens, and a mask of the real tokens, bool [B,P]."""
    return _padded([ids_of(prompt) for prompt in prompts], pad_id, left=True, width=width)


def _padded(rows: Sequence[Sequence[int]], pad_id: int, *, left: bool, width: int = 1) -> tuple[Tensor, Tensor]:
    width = max(width, *(len(row) for row in rows)) if rows else width
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for index, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[index, place] = torch.tensor(row, dtype=torch.long)
        mask[index, place] = True
    return ids, mask


def trim(tokens: Tokens) -> Tokens:
    """Return the tokens without the columns that are padding in every row (at least one column is left)."""
    masks = (tokens.prompt_mask, tokens.mask)
    prompts, responses = (max(1, int(mask.sum(1).max())) if len(mask) else 1 for mask in masks)
    return Tokens(
        tokens.prompt_ids[:, -prompts:],
        tokens.prompt_mask[:, -prompts:],
        tokens.response_ids[:, :responses],
        tokens.mask[:, :responses],
        tokens.eos[:, :responses],
        no_end=None if tokens.no_end is None else tokens.no_end[:, :responses],
        turn=None if tokens.turn is None else tokens.turn[:, :responses],
    )


def select(tokens: Tokens, rows: Any) -> Tokens:
    """Return some rows of `tokens` (of a `Rollout`: their ids and masks)."""
    columns = {column.name: getattr(tokens, column.name) for column in fields(Tokens)}
    chosen: dict[str, Any] = {name: None if value is None else value[rows] for name, value in columns.items()}
    return Tokens(**chosen)


FROZEN_MICRO_BATCH_SIZE = 16
"""Number of rows of one pass of a frozen model over given responses, if no setting of the recipe chooses it."""


def micro_batches(
    tokens: Tokens,
    micro_batch_size: int,
    device: Any = None,
    *,
    shared: bool = True,
    packed: int | None = None,
    columns: Sequence[Tensor] = (),
    equal: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """Yield indices [b] of rows of `tokens`, and these rows, trimmed and on `device`, each row once. These rows of each
    of the `columns` [B,T] follow, trimmed alike.

    Rows of one micro-batch have similar lengths or, if the models read `shared` prompts once, a common prompt
    (`models.arrange`). packed: maximum number of tokens of a micro-batch, instead of `micro_batch_size` rows, if the
    models read rows without padding. equal: all processes call this, each with at least one row, and get the same
    number of micro-batches: a process with fewer gets its last one again.
    """
    prompts = [tuple(row) for row in tokens.prompt_ids.masked_fill(~tokens.prompt_mask, -1).tolist()]
    lengths, responses = tokens.prompt_mask.sum(1).tolist(), tokens.mask.sum(1).tolist()
    if packed is None:
        starts = range(0, len(prompts), micro_batch_size)
        sizes = [min(micro_batch_size, len(prompts) - start) for start in starts]
        chosen = models.arrange(prompts, lengths, responses, sizes, shared=shared)
        cuts = [chosen[start : start + micro_batch_size] for start in starts]
    else:
        whole = [prompt + response for prompt, response in zip(lengths, responses, strict=True)]
        cuts = token_budget.dealt(whole, token_budget.fewest(whole, packed))
    if equal:
        cuts = [*cuts, *[cuts[-1]] * (together.most(len(cuts)) - len(cuts))]
    for indices in cuts:
        rows = torch.tensor(indices, dtype=torch.long, device=tokens.mask.device)
        part = trim(select(tokens, rows))
        part = part if device is None else part.to(device)
        cut = [column[rows.to(column.device), : part.mask.shape[1]].to(part.mask.device) for column in columns]
        yield rows, part, *cut


def in_micro_batches(
    tokens: Tokens,
    compute: Callable[..., dict[str, Tensor]],
    micro_batch_size: int,
    readers: Sequence[LanguageModel] = (),
    *,
    columns: Sequence[Tensor] = (),
) -> dict[str, Tensor]:
    """Run `compute` over `micro_batches`, and put the [b,t] results back in order.

    compute: function of the tokens of a micro-batch, and the same part of each of the `columns` [B,T]. readers: the
    models that it uses. The tokens of a micro-batch are on their device. If the weights of one of them are sharded, all
    processes call this, also a process without rows. Results are zero-padded to [B,T] and returned on the device of
    `tokens`.
    """
    sharded, budgets = any(reader.sharded for reader in readers), [reader.packed_tokens for reader in readers]
    if sharded and not len(tokens.mask):
        filler = in_micro_batches(
            _one_row(tokens), compute, 1, readers, columns=[each.new_ones(1, 1) for each in columns]
        )
        return {name: result[:0] for name, result in filler.items()}
    whole: dict[str, Tensor] = {}
    for rows, *part in micro_batches(
        tokens, micro_batch_size, readers[0].device if readers else None, columns=columns, equal=sharded,
        shared=all(reader.shares_prompts(gradient=False) for reader in readers),
        packed=min((each for each in budgets if each), default=None) if all(budgets) else None,
    ):  # fmt: skip
        for name, result in models.gathering(readers, partial(compute, *part)).items():
            if name not in whole:
                whole[name] = torch.zeros(tokens.mask.shape, dtype=result.dtype, device=tokens.mask.device)
            whole[name][rows, : result.shape[1]] = result.to(tokens.mask.device)
    return whole


def _one_row(tokens: Tokens) -> Tokens:
    """Return a prompt of one token with a response of one token, with the columns of `tokens`."""
    columns = {column.name: getattr(tokens, column.name) for column in fields(Tokens)}
    row: dict[str, Any] = {name: None if value is None else value.new_zeros(1, 1) for name, value in columns.items()}
    return Tokens(**row | {name: torch.ones_like(row[name]) for name in ("prompt_mask", "mask")})
