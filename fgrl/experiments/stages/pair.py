"""Construction of preference pairs from responses."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.experiments.stages.annotate import AnnotateStage
from fgrl.experiments.stages.sample import SampleStage
from fgrl.kinds import Expected, PairBuilder, Peek, Reader, Run, Stage
from fgrl.kinds.reader import expected
from fgrl.registry import Key, register, walk
from fgrl.types import Pair, Pairs, Ref, write_jsonl


@register("pair")
class PairStage(Stage):
    """Preference pairs that a pair builder makes from the responses of every sample."""

    makes = Pairs

    data: Reader
    """Reader of samples with several responses each."""
    builder: PairBuilder
    """Pair builder that decides which response is preferred to which."""
    max_pairs: int | None = Field(None, ge=1)
    """Maximum number of pairs to keep. They are drawn with the recipe's seed and stay in order. null keeps all."""

    def misfits(self, stages: Mapping[str, Stage]) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(stages)
        path, origin = only_source(self.data)
        for _ in stages:  # to the stage that drew what others have annotated since
            stage = stages[origin] if origin is not None else None
            if isinstance(stage, AnnotateStage) and stage.annotator.keeps_responses:
                _path, origin = only_source(stage.data)
        drawn = None if origin is None else stages[origin]
        if isinstance(drawn, SampleStage) and drawn.per_prompt == 1:
            message = f'stage "{origin}" draws one response per prompt, and a pair needs two: set its per_prompt'
            yield ("data", *path), message

    def expects(self, peek: Peek) -> Expected | None:
        given = expected(self.data, peek)
        if given is None or given.responses is None:
            return None
        of_prompt = [math.comb(given.responses, 2), getattr(self.builder, "max_per_prompt", None)]
        each = min(count for count in of_prompt if count is not None)
        return Expected(given.samples * each).after(0, self.max_pairs)

    def run(self, run: Run) -> dict[str, Any]:
        self.setup(run)
        samples = list(self.data.read())
        by_prompt = [self.builder.build(sample) for sample in samples]
        pairs = [pair for own in by_prompt for pair in own]
        if not pairs:
            raise DataError(
                f"no pairs: none of the {len(samples)} prompts has responses that {type(self.builder).__name__} can "
                "set against each other; draw more responses per prompt"
            )
        kept = drawn(pairs, self.max_pairs, run.seed)
        left = {pair.id for pair in kept}
        write_jsonl(run.out / "pairs.jsonl", kept)
        return {
            "pairs": len(kept),
            "prompts with a pair": sum(any(pair.id in left for pair in own) for own in by_prompt),
            "prompts": len(samples),
            **({"left out by max_pairs": len(pairs) - len(kept)} if self.max_pairs is not None else {}),
        }


def only_source(data: Reader) -> tuple[Key, str | None]:
    """Return the place of the only reference to a stage in a reader and the stage's name; the name is None if there is
    no reference or more than one.
    """
    sources = [(path, ref.stage) for path, ref in walk(data) if isinstance(ref, Ref)]
    return sources[0] if len(sources) == 1 else ((), None)


def drawn(pairs: Sequence[Pair], count: int | None, seed: int) -> list[Pair]:
    """Return `count` of the pairs, in order; None takes all. The choice depends on the seed and on the pairs' ids, so
    one more pair displaces at most one other pair.
    """
    if count is None:
        return list(pairs)

    def lot(place: int) -> bytes:
        return hashlib.blake2b(f"{seed}\n{pairs[place].id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    return [pairs[place] for place in sorted(sorted(range(len(pairs)), key=lot)[:count])]
