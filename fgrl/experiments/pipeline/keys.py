"""A stage's identity: everything that can change its result, and nothing else. Its hash is the stage's key.

Included: the seed, `--limit`, names and versions of components, all their parameters, contents of the files they read,
the content of data as its reader identifies it, weights of local models, the source of imported user files and of
components that a notebook or a script defines, versions of the packages that provide components through an entry point,
keys of upstream stages. Not included: fields marked `Unkeyed`, fields that have their default (a default that changes
raises the version of its component), the stage's own name, the names of its upstream stages, and the places of files.

Models and data on a hub are identified by name and `revision` alone: computing a key never uses the network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.base import lazy
from fgrl.base.files import kept, sha256_of_code, sha256_of_file, sha256_of_folder
from fgrl.kinds import Reader, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import origins
from fgrl.registry.problems import Key, dotted
from fgrl.types import Ref

models = lazy.load("fgrl.models")

LENGTH = 16
"""Number of hex digits of a key."""
FORMAT = 2
"""Version of the format of stage folders. Folders of an older format are not found."""

Identity = dict[str, Any]


def identity(
    stage: Stage,
    *,
    seed: int,
    upstream: Mapping[str, str],
    sources: Mapping[Path, str] | None = None,
    limit: int | None = None,
) -> Identity:
    """Return the identity of a stage as JSON-ready data; `upstream` has the keys of the stages it refers to.

    Models are listed with the attention that is used here, not with the requested attention. A place is replaced by its
    content: `${out:x}` by `{"product": key}`, a file by `{"sha256": ...}`, a model by `{"weights": fingerprint}`.
    "data" has a hash of `Reader.identity()` by the path of each reader.
    """
    settings = registry.dump(stage, for_key=True)
    owners: list[registry.Settings] = [stage]
    data: Identity = {}
    for path, value in registry.walk(stage):
        if isinstance(value, Ref):
            _put(settings, path, {"product": upstream[value.stage]})
        elif isinstance(value, ModelSpec):
            if isinstance(value.base, str):
                _put(settings, (*path, "base"), {"weights": models.fingerprint(value)})
            _put(settings, (*path, "attention"), value.attention_here())
        elif isinstance(value, registry.Settings):
            owners.append(value)
            if isinstance(value, Reader) and (content := value.identity()):
                data[dotted(path)] = {"sha256": _sha256_of(content)}
                for name in value.placed():  # what it holds is in the identity, and where it lies does not count
                    _put(settings, (*path, name), "folder")
        else:
            _put(settings, path, {"sha256": sha256(Path(value))})
    whole: Identity = {"format": FORMAT, "seed": seed, "settings": settings}
    if data:
        whole["data"] = data
    if limit is not None:
        whole["limit"] = limit
    return whole | origins.code_of([type(owner) for owner in owners], sources or {})


def key(whole: Identity) -> str:
    """Return the first digits of the sha256 of the canonical JSON of an identity."""
    return _sha256_of(whole)[:LENGTH]


def _sha256_of(value: Any) -> str:
    """Return the sha256 of JSON-ready data, independent of the order of its mappings."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes. For a Python file, only the parts that affect its behaviour are hashed; for
    a folder, the names and contents of its files, without the bytecode that Python writes beside its source.
    """

    def entry(name: str, file: Path) -> bytes:
        return b"" if "__pycache__" in name.split("/") else f"{name}:{sha256(file)}\n".encode()

    if path.is_dir():
        return sha256_of_folder(path, entry)
    return sha256_of_code(path.read_bytes()) if path.suffix == ".py" else sha256_of_file(kept(path))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path (`a.b.0`) and value of every leaf. A mapping that stands for a place (`{"product": ...}`) is a
    leaf.
    """
    if isinstance(value, Mapping) and not place(value):
        items: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield path, value
        return
    for name, item in items:
        yield from leaves(item, f"{path}.{name}" if path else str(name))


def place(value: Any) -> str | None:
    """Return "product", "sha256" or "weights" for a mapping that stands for a place, else None."""
    if isinstance(value, Mapping) and len(value) == 1:
        name = next(iter(value))
        return name if name in ("product", "sha256", "weights") else None
    return None


def _put(settings: Any, path: Key, value: Any) -> None:
    """Set `settings[path]`, also inside a field that was left out."""
    for part in path[:-1]:
        settings = settings.setdefault(part, {}) if isinstance(settings, dict) else settings[part]
    settings[path[-1]] = value
