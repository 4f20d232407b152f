"""Drawn responses on disk, before they are scored: a run that is killed meanwhile goes on with the same responses.

The random streams alone do not promise that: an engine in another process may draw others after a restart.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fgrl.base import stops
from fgrl.base.files import write_json
from fgrl.kinds import Drawer, DrawRequest
from fgrl.types import DrawnResponse

FOLDER = "drawn"
"""In the stage's folder: `<rank>-<iteration>.json`."""
END = 30.0
"""Seconds that an engine has to notice that the run stops."""


class Kept(Drawer):
    """Another drawer, whose responses are kept in a file. New weights go to that drawer, which is also the one to
    close.
    """

    def __init__(self, drawer: Drawer, file: Path, missed: Callable[[], object] = lambda: None) -> None:
        """`missed` is called before responses are drawn that are not in the file."""
        self._drawer, self._file, self._missed = drawer, file, missed

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        """Return the responses in the file, where they are those to these requests; else draw them and write the
        file.
        """
        asked = fingerprint(requests)
        if (kept := self._kept(asked)) is not None:
            return kept
        self._missed()
        drawn = self._drawer.draw(requests)
        write_json(self._file, {"asked": asked, "drawn": [of_engine(each) for each in drawn]}, indent=None)
        return drawn

    def _kept(self, asked: str) -> list[DrawnResponse] | None:
        try:
            kept: Any = json.loads(self._file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # a file that was cut off has no responses
            return None
        return [DrawnResponse(**each) for each in kept["drawn"]] if kept["asked"] == asked else None


def of_engine(response: DrawnResponse) -> dict[str, Any]:
    """Return what the engine said about a response, without what `rollouts` added."""
    return {name: value for name, value in vars(response).items() if name not in ("prompt", "text")}


def fingerprint(requests: Sequence[DrawRequest]) -> str:
    """Return a hash of everything that decides what is drawn, apart from the weights: each response has the version of
    those.
    """
    digest = hashlib.sha256()
    for one in requests:
        sampling = one.sampling.model_dump(exclude={"batch_size"})
        digest.update(json.dumps([list(one.prompt.token_ids), sampling, one.seed, one.row, repr(one.early)]).encode())
    return digest.hexdigest()


class Draws:
    """The draws of a training, each kept in a file of its own. One may be made in a thread, meanwhile no other is made. A
    context manager, which ends it.
    """

    def __init__(self, drawer: Drawer, folder: Path, rank: int) -> None:
        """`folder` is the stage's."""
        self._drawer, self._folder, self._rank = drawer, folder / FOLDER, rank
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def of(self, number: int) -> Drawer:
        """Return the drawer of an iteration, after the one that draws ahead has finished. Raises what it raised."""
        self.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._folder.mkdir(parents=True, exist_ok=True)
        # what a killed process drew for later iterations was of another policy
        later = functools.partial(self._delete, lambda each: each > number)
        return Kept(self._drawer, self._folder / f"{self._rank}-{number}.json", later)

    def begin(self, number: int, requests: Sequence[DrawRequest]) -> None:
        """Draw the responses of an iteration in a thread."""
        drawer = self.of(number)
        self._thread = threading.Thread(target=self._run, args=(drawer.draw, requests), name="draw ahead", daemon=True)
        self._thread.start()

    def _run(self, draw: Callable[[Sequence[DrawRequest]], Any], requests: Sequence[DrawRequest]) -> None:
        try:
            draw(requests)
        except BaseException as failure:
            self._failure = failure  # raised in the thread that trains, by `of`
        finally:
            stops.forget(threading.get_ident())  # a later thread may have the same number

    def wait(self) -> None:
        """Return when nothing is drawn any more. Raises `KeyboardInterrupt` if the run is to stop."""
        while self._thread is not None and self._thread.is_alive():
            stops.point()
            self._thread.join(0.1)
        self._thread = None

    def forget(self, before: int) -> None:
        """Delete the responses of iterations before this one."""
        self._delete(lambda each: each < before)

    def _delete(self, chosen: Callable[[int], bool]) -> None:
        for file in self._folder.glob(f"{self._rank}-*.json"):
            if chosen(int(file.stem.partition("-")[2])):
                file.unlink()

    def __enter__(self) -> Draws:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the thread; one whose engine does not look at `stops.point` ends when the engine is closed."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive() and thread.ident is not None:
            stops.ask(thread.ident)
            thread.join(END)
            if not thread.is_alive():
                stops.forget(thread.ident)  # it ended before it was asked
