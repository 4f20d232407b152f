"""A stage's run in a temporary folder: to look at samples, or to measure answers again. Nothing of it is kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fgrl.console import Console
from fgrl.kinds import Stage
from fgrl.pipeline.run import Run


@contextmanager
def scratch_run(
    name: str,
    stage: Stage,
    *,
    cache: Path,
    seed: int,
    products: Mapping[str, Path],
    console: Console | None = None,
    limit: int | None = None,
) -> Iterator[Run]:
    """products: product folders of the upstream stages, by name."""
    with tempfile.TemporaryDirectory(prefix="fgrl-") as folder:
        run = Run(
            name,
            Path(folder),
            cache=cache,
            seed=seed,
            products=products,
            console=console or Console(),
            limit=limit,
            accelerator=stage.accelerator(),
        )
        run.out.mkdir()
        yield run
