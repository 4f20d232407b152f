"""Segments with boundaries from a function in a user's Python file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import PrivateAttr, model_validator

from fgrl.base import lazy
from fgrl.kinds import Segmenter
from fgrl.kinds.functions import Caller, FunctionFile, Texts, boundaries, key_of
from fgrl.registry import File, register
from fgrl.types import Sample, Segmentable

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


@register("function")
class FunctionSegmenter(Segmenter):
    """A Python function divides responses: `def cut(completions, **kwargs) -> list[list[int]]` returns, for each text,
    the character positions at which segments start.

    A function that takes `completion_tokens` or `completion_ids`, and no `completions`, returns tokens (from 0) in
    place of characters. A character inside a token starts a segment at that token.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"text"})

    path: Annotated[str, FunctionFile]
    """Function such as `cuts.py:cut`, relative to the recipe."""
    arguments: dict[str, Any] = {}
    """Additional keyword arguments of the function."""
    files: list[Annotated[str, File]] = []
    """Files that the function reads. Their content is part of the cache key."""

    _caller: Caller = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> FunctionSegmenter:
        self._caller = Caller([self.path], allowed=("numbers", "tokens"), arguments=self.arguments, form="text")
        return self

    def behind(self) -> list[str]:
        return key_of([self.path])

    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: True at the start of segments. Raise `UserCodeError` for boundaries outside of a text,
        ValueError if texts or offsets are missing.
        """
        if view.texts is None or view.offsets is None:
            raise ValueError("the segmenter `function` needs texts and token offsets, and this view has none")
        lengths = (view.mask & ~view.eos).sum(dim=1).tolist()
        ids = [row[:length] for row, length in zip(view.ids.tolist(), lengths, strict=True)]
        offsets = [own[:length] for own, length in zip(view.offsets, lengths, strict=True)]
        samples = [Sample(id=str(row), prompt="") for row in range(len(ids))]
        value = self._caller.values(Texts(samples, view.texts, ids, offsets))[0]
        function = self._caller.functions()[0]
        by_token = "completions" not in function.parameters and not {"completion_tokens", "completion_ids"}.isdisjoint(
            function.parameters
        )
        starts = torch.zeros_like(view.mask)
        extents = lengths if by_token else [len(text) for text in view.texts]
        for row, own in enumerate(boundaries(function, value, extents, "token" if by_token else "character")):
            for place in own:
                token = place if by_token else _token_at(offsets[row], place)
                if token is not None and token < lengths[row]:
                    starts[row, token] = True
        return starts & view.mask


def _token_at(offsets: list[tuple[int, int]], character: int) -> int | None:
    """Return the first token that covers the character or begins after it; None after the last token."""
    return next((token for token, (start, end) in enumerate(offsets) if character < end or start > character), None)
