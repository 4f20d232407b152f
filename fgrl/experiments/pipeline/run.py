"""Environment of a running stage: its folders, its seed, the products of other stages, a log, a console.

A stage that was killed starts again in the same `dir` with an empty `out`. State for continuing is in `dir`, the
product for other stages is in `out`. The pipeline writes `stage.json` after the stage has returned, which marks it as
finished.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy, ranks, seeds
from fgrl.base.console import Console, Ticking
from fgrl.base.files import refuse_links
from fgrl.base.sanitizing import hide
from fgrl.experiments.pipeline.log import Log
from fgrl.kinds.run import C
from fgrl.runs.stage import Stage
from fgrl.types import AlarmRecord, Ref

if TYPE_CHECKING:
    from fgrl.kinds.specs import ModelSpec, Sampling
models = lazy.load("fgrl.models")
torch = lazy.load("torch")


class Run:
    """Run of one stage. `fgrl.kinds.Run` is the part of it that components may rely on."""

    def __init__(
        self,
        stage: str,
        folder: Path,
        *,
        cache: Path,
        seed: int = 0,
        products: Mapping[str, Path] | None = None,
        console: Console | None = None,
        rank: int = 0,
        limit: int | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        tracker: Any = None,
        accelerator: str = "auto",
    ) -> None:
        self.stage = stage
        self.seed = seed
        self.rank = rank
        """Rank in a distributed stage. Only rank 0 writes files and messages."""
        self.limit = limit
        """`--limit`: maximum number of samples to read and of steps to take. It is part of the stage's key."""
        self.accelerator = accelerator
        """Accelerator of the stage's settings: "cpu" keeps models off an existing GPU."""
        self.dir = folder
        self.out = folder / "out"
        self.cache = cache
        self.products = dict(products or {})
        self.console = console or Console(quiet=True)
        self.sampling: Sampling | None = None
        self.noticed = False
        """True if `interrupted` was read while it was true: the result of the stage is then not a finished product."""
        self._interrupted = interrupted
        self._tracker = tracker
        self._log = Log(folder) if rank == 0 else None
        if rank == 0:
            refuse_links(cache, cache.parent)
        self._models: dict[str, Any] = {}
        self._shared: dict[str, Any] = {}
        self._plain: set[Any] = set()
        """Models without a chat template for which a notice was printed."""

    @property
    def interrupted(self) -> bool:
        """Return True if Ctrl-C was pressed: the stage saves its state and returns. A stage that has read it as true
        counts as unfinished.
        """
        asked = self._interrupted()
        self.noticed = self.noticed or asked
        return asked

    def stop_if_interrupted(self) -> None:
        """Raise `KeyboardInterrupt` after Ctrl-C. Call it only when all work so far is on disk."""
        if self.interrupted:
            raise KeyboardInterrupt

    def path(self, ref: Ref[Any]) -> Path:
        """Return the product folder of another stage."""
        if ref.stage not in self.products:
            known = ", ".join(self.products) or "none"
            raise KeyError(f"stage {self.stage} did not name {ref!r} in its fields; its upstream stages: {known}")
        return self.products[ref.stage]

    def model(self, spec: ModelSpec, *, head: str = "lm", trainable: bool = False, shards: bool = False) -> Any:
        """Return a loaded `fgrl.models.LanguageModel`. Frozen models are shared within the stage. shards: the training
        will shard the weights; until then only rank 0 reads them.
        """
        if trainable or shards:
            return self._load(spec, head, trainable, shards)
        key = json.dumps([head, spec.model_dump(mode="json")], sort_keys=True)
        if key not in self._models:
            self._models[key] = self._load(spec, head, trainable=False, shards=False)
        return self._models[key]

    def _load(self, spec: ModelSpec, head: str, trainable: bool, shards: bool) -> Any:
        skeleton = shards and ranks.place() > 0
        model = models.load(spec, head=head, trainable=trainable, resolve=self.path, skeleton=skeleton)
        if not shards:  # those go to the device part by part
            model.to(self.device)
        if model.head != "token" and not model.tokenizer.chat_template and spec.base not in self._plain:
            self._plain.add(spec.base)
            self.say(
                f"warning: {spec.base} has no chat template, so prompts are given to it as plain text: if it is a chat model, "
                "name a file with its template as `chat_template` of the model"
            )
        if model.number is not None and not model.number.trained:
            frozen = "" if trainable else ", which nothing trains here: its numbers mean nothing"
            self.say(f"{spec.base} has no {model.head} head: a new one starts from random weights{frozen}")
        return model

    def forget_models(self) -> None:
        """Free the frozen models that no other object references."""
        self._models.clear()

    def shared(self, name: str, make: Callable[[], C]) -> C:
        """Return an object that several components of the stage share. It is made at the first call, and closed by
        `close`.
        """
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def close(self) -> None:
        """Close the objects that the components of the stage share."""
        while self._shared:
            self._shared.popitem()[1].close()

    @property
    def device(self) -> Any:
        """Return the GPU of this process, or the CPU if there is no GPU or the stage does not use it."""
        if self.accelerator == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", ranks.local_rank())

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append to `log.jsonl` and `metrics.csv` (and to the trackers). Steps must not decrease. The first call of a
        process removes the rows that an earlier, killed process logged after this step, and its rows of the same
        metrics at this step.
        """
        if self._log is None:
            return
        numbers = {hide(name): float(value) for name, value in metrics.items()}
        self._log.append(numbers, step)
        if self._tracker is not None:
            self._tracker.log(numbers, step)

    def say(self, text: str) -> None:
        """Print one line for the user at the terminal (stderr)."""
        if self.rank == 0:
            self.console.say(text)

    def record_alarms(self, alarms: Sequence[AlarmRecord]) -> None:
        """Record the alarms of a training so far in the stage's record."""
        if self.rank == 0:
            Stage(self.dir).keep_alarms(alarms)

    def progress(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Ticking]:
        """Return a progress line with ETA; `done` steps were already taken before this process."""
        return self.console.progress(what, total, done)

    def seed_libraries(self, *, with_torch: bool = True) -> None:
        """Seed Python, NumPy and torch, so that a stage draws the same numbers whatever ran before it in this process.
        Tensors that a library puts on "the GPU" go to the GPU of this process.

        A stage whose class has `uses_torch = False` avoids the seconds that loading torch takes.
        """
        if with_torch:
            seeds.seed_libraries(self.seed)
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
        else:
            random.seed(self.seed)


@contextmanager
def scratch_run(name: str, **arguments: Any) -> Iterator[Run]:
    """Give a stage's run in a temporary folder, to look at samples or to score a text. Nothing in it is kept.

    arguments: arguments of `Run`. Without `cache`, the cache is in the same folder.
    """
    with tempfile.TemporaryDirectory(prefix="fgrl-") as folder:
        run = Run(name, Path(folder), **({"cache": Path(folder) / "cache"} | arguments))
        run.out.mkdir()
        with contextlib.closing(run):
            yield run
