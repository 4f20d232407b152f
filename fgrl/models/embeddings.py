"""Sentence embeddings. Each text is embedded once; vectors are cached in a file by a hash of encoder and text."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy, ranks
from fgrl.base.files import damage_reported
from fgrl.kinds.specs import ModelSpec
from fgrl.models.pretrained import sentence_encoder
from fgrl.models.sources import Resolve, fingerprint, locate

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy.load("numpy")

CHUNK = 1024
"""Number of texts embedded between two writes to the cache."""


class SentenceEncoder:
    """Encoder from texts to unit vectors; a cosine is the product of two of them.

    spec: a sentence-transformers model: hub id, folder, or `all-minilm-l6-v2`, which comes in a package. cache: folder
    of the file that stores embeddings. device: device of the model. resolve: function from `${out:stage}` to a folder.
    """

    def __init__(
        self, spec: ModelSpec, cache: Path, *, device: Any = "cpu", batch_size: int = 64, resolve: Resolve | None = None
    ) -> None:
        self.spec, self.device, self.batch_size, self.resolve = spec, device, batch_size, resolve
        # an SQLite file is for one machine
        self.file = cache / "embeddings.sqlite" if ranks.on_first_node() else Path(":memory:")
        self.name = fingerprint(spec)
        self._model: Any = None

    def embed(self, texts: Sequence[str], tick: Callable[[int], None] = lambda _count: None) -> np.ndarray:
        """Return embeddings, float32 [N,D], rows of length 1. `tick` is called with numbers of finished texts."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        known: dict[str, np.ndarray] = {}
        keys = {
            text: hashlib.sha256(f"{self.name}\0{text}".encode(errors="surrogatepass")).hexdigest() for text in texts
        }
        with closing(sqlite3.connect(self.file, timeout=60)) as database, damage_reported(self.file):
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("CREATE TABLE IF NOT EXISTS embeddings (key TEXT PRIMARY KEY, vector BLOB NOT NULL)")
            for text, key in keys.items():
                row = database.execute("SELECT vector FROM embeddings WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    known[text] = np.frombuffer(row[0], dtype="<f4")
            tick(len(known))
            # by length, so that little is padded
            missing = sorted((text for text in keys if text not in known), key=len)
            for start in range(0, len(missing), CHUNK):
                batch = missing[start : start + CHUNK]
                vectors = self._encode(batch)
                with database:
                    database.executemany(
                        "INSERT OR REPLACE INTO embeddings VALUES (?, ?)",
                        [
                            (keys[text], vector.astype("<f4").tobytes())
                            for text, vector in zip(batch, vectors, strict=True)
                        ],
                    )
                known |= dict(zip(batch, vectors, strict=True))
                tick(len(batch))
        return np.stack([known[text] for text in texts]) if texts else np.zeros((0, 0), dtype="float32")

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        if self._model is None:
            source = locate(self.spec, self.resolve)
            options = {"revision": source.revision, "device": str(self.device), "local_files_only": source.local}
            self._model = sentence_encoder(source.name, **options)
        return self._model.encode(
            list(texts), batch_size=self.batch_size, normalize_embeddings=True, show_progress_bar=False
        )
