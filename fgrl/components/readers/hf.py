"""Data sets of the Hugging Face hub, and local files in formats of the `datasets` library, with TRL's columns."""

from __future__ import annotations

from collections.abc import Iterator

from fgrl.data.formats.columns import Format
from fgrl.data.formats.converter import Converter
from fgrl.data.formats.table_reader import TableReader
from fgrl.data.hub import Hub
from fgrl.registry import register
from fgrl.types import Pair, Sample


@register("hf")
class HuggingFace(Hub, TableReader):
    """Reader for a data set by hub id, a local folder, or local files of one kind (`path: json` with `files`).

    `format: preference` reads hendrydong/preference_700K, HuggingFaceH4/ultrafeedback_binarized (split `train_prefs`)
    and argilla/ultrafeedback-binarized-preferences-cleaned without further settings; `format: prompts` reads these and
    openbmb/UltraFeedback.
    """

    format: Format
    """Content of the columns: preference pairs, prompts alone, or prompts with a response."""

    def read(self) -> Iterator[Sample]:
        return self.converted(self.format, Converter.sample)

    def pairs(self) -> Iterator[Pair]:
        return self.converted_pairs(self.path, self.format)
