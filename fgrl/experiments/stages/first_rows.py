"""Checks of the first rows of local data files before anything runs: whether the columns exist that the reader, the
rewards and the metrics need, and whether prompts fit the limits.

Not checked: data on the hub, data of stages that have not run, and local parquet files, whose libraries take seconds to
load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fgrl.base import lazy
from fgrl.base.errors import DataError, FgrlError, NotYet, Unavailable, UserCodeError
from fgrl.data.row_reader import RowReader
from fgrl.kinds import Metric, Reader, Reward, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Settings, walk
from fgrl.registry.problems import dotted
from fgrl.types import Pair, Sample

conversing = lazy.load("fgrl.rollouts.conversing")
shapes = lazy.load("fgrl.models.shapes")
tokenizers = lazy.load("tokenizers")

Rows = list[Sample | Pair]
FIRST = 50
"""Maximum number of rows of a larger file that are checked."""
FEWEST_BYTES = 2
"""Minimum average number of bytes of a token. Only prompts with more bytes than this per token of their limit can
exceed it, so only they need the tokenizer.
"""
SMALL = 2**20
"""Maximum number of bytes of a file that is read completely."""


class Look(NamedTuple):
    """Results of the check of the first rows, each with the path in the recipe of the component that reads them."""

    problems: list[tuple[str, FgrlError]]
    """Paths of readers and of components that ask about rows, with the error that a run would report there."""
    warnings: list[str]
    """Warnings about prompts longer than their limit, if the model's tokenizer is a file on this machine."""


def look(stages: Mapping[str, Stage]) -> Look:
    """Check the first rows of the local data files that stages read."""
    seen: dict[str, Rows | FgrlError] = {}
    found: list[tuple[str, FgrlError]] = []
    warnings = []
    for name, stage in stages.items():
        for path, reader in walk(stage):
            if isinstance(reader, Reader) and isinstance(rows := _known(reader, seen), FgrlError):
                found.append((f"stages.{name}.{dotted(path)}", rows))
        for path, part, prompts in _answering(stage):
            rows = _known(prompts, seen)
            samples = [] if isinstance(rows, FgrlError) else [row for row in rows if isinstance(row, Sample)]
            if samples and (problem := _unmet(part, samples, prompts)):
                found.append((f"stages.{name}.{dotted(path)}", problem))
        field = "prompts" if hasattr(stage, "prompts") else "data"
        reader = getattr(stage, field, None)
        if isinstance(reader, Reader) and not isinstance(rows := _known(reader, seen), FgrlError):
            warnings += [f"stages.{name}.{field}: {text}" for text in _too_long(stage, rows)]
            rollout = getattr(stage, "rollout", None)
            if rollout is not None and rollout.environment is None:
                empty = [conversing.empty_prompt(row.id, row.prompt) for row in rows if isinstance(row, Sample)]
                found += [(f"stages.{name}.{field}", problem) for problem in empty if problem][:1]
    return Look(found, warnings)


def _too_long(stage: Stage, rows: Rows) -> Iterator[str]:
    sampling = getattr(getattr(stage, "rollout", stage), "sampling", stage)
    limit: int = getattr(sampling, "max_prompt_tokens", None) or FIRST**9
    texts = [row.prompt for row in rows if isinstance(row.prompt, str)]
    texts = [text for text in texts if len(text.encode()) > FEWEST_BYTES * limit]
    tokenizer = _tokenizer(stage) if texts else None
    counts = [] if tokenizer is None else [len(encoded.ids) for encoded in tokenizer.encode_batch(texts)]
    if over := [count for count in counts if count > limit]:
        yield (
            f"{len(over)} of the first {len(rows)} prompts have more than max_prompt_tokens {limit} tokens, up to {max(over)}: "
            "they lose their beginning"
        )


def _known(reader: Reader, seen: dict[str, Rows | FgrlError]) -> Rows | FgrlError:
    """Return the first rows of a reader, [] if they are not checked, or the error of reading them."""
    key = repr(reader)
    if key not in seen:
        try:
            seen[key] = list(reader.first(FIRST, SMALL))
        except DataError as problem:
            seen[key] = problem
        except NotYet:
            seen[key] = []
    return seen[key]


def _answering(part: Settings, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Metric | Reward, Reader]]:
    """Yield the rewards and metrics of a stage with their paths, and the reader of the prompts whose answers they read."""
    for where, value in [((), part), *((where, value) for where, value in walk(part) if isinstance(value, Settings))]:
        prompts = getattr(value, "prompts", None)
        if not isinstance(prompts, Reader):
            continue
        for field in ("reward", "rewards", "metrics"):
            held = getattr(value, field, None)
            items = (
                held.items()
                if isinstance(held, Mapping)
                else enumerate(held)
                if isinstance(held, list)
                else [(None, held)]
            )
            for key, item in items:
                if isinstance(item, Metric | Reward):
                    yield (*path, *where, field, *([] if key is None else [key])), item, prompts


def _unmet(part: Metric | Reward, samples: Sequence[Sample], prompts: Reader) -> FgrlError | None:
    """Return the error of a part of the recipe that cannot score answers to these prompts, with the place of the first
    such prompt; None if it can.
    """
    try:
        part.check_prompts(samples)
    except (UserCodeError, Unavailable) as problem:
        return problem
    except DataError as problem:
        if len(samples) > 1:
            alone = ((number, _unmet(part, [sample], prompts)) for number, sample in enumerate(samples))
            number, first = next(((number, error) for number, error in alone if error is not None), (0, problem))
            return DataError(f"{_place(prompts, number, len(samples))}{first}")
        return problem
    return None


def _place(reader: Reader, number: int, rows: int) -> str:
    """Return file and line of a row, as the start of a message; empty if the rows are not from one file."""
    if not (isinstance(reader, RowReader) and reader.in_local_files(SMALL)):
        return ""
    where, _rows, numbers = reader.opened()
    return f"{reader.place(where, numbers[number])}: " if len(numbers) == rows else ""


def _tokenizer(stage: Stage) -> Any:
    """Return the tokenizer of the model that a stage prompts, if its file is on this machine; else None."""
    models = getattr(stage, "models", None)
    spec = getattr(stage, "model", None) or (next(iter(models.values()), None) if isinstance(models, Mapping) else None)
    if not isinstance(spec, ModelSpec) or not isinstance(spec.base, str):
        return None
    try:
        _config, folder = shapes.find(spec.base, spec.revision)
    except shapes.Unknown:
        return None
    file = None if folder is None else folder / "tokenizer.json"
    return None if file is None or not file.is_file() else tokenizers.Tokenizer.from_file(str(file))
