"""Drawn responses on disk, before they are scored: a run that is killed meanwhile continues with the same responses.

Random streams alone do not guarantee this: an engine in another process may draw others after a restart.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fgrl.base import stops
from fgrl.base.files import sync
from fgrl.kinds import Drawer, Drawing, DrawRequest
from fgrl.types import DrawnResponse, Message, Prompt, Turn

FOLDER = "drawn"
"""Folder in the stage's folder with files `<rank>-<iteration>.jsonl`."""
END = 30.0
"""Seconds that an engine has to react when the run stops."""


class Kept(Drawer):
    """Drawer that stores the responses of another drawer in a file. New weights and `close` are for that other drawer."""

    def __init__(self, drawer: Drawer, file: Path, missed: Callable[[], object] = lambda: None) -> None:
        """Create the drawer. `missed` is called before responses are drawn that are not in the file."""
        self._drawer, self._file, self._missed = drawer, file, missed
        self.converses = drawer.converses

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        """Return the responses to these requests from the file; missing responses are drawn, and written to the file."""
        return self.drawing().all_of(requests)

    def drawing(self) -> Drawing:
        return Keeping(self, self._drawer.drawing(), self._file, self._missed)


class Keeping(Drawing):
    """Drawing that takes responses from a file and from another drawing, whose responses are written to the file as
    they finish.
    """

    def __init__(self, drawer: Drawer, others: Drawing, file: Path, missed: Callable[[], object]) -> None:
        super().__init__(drawer)
        self._others, self._file, self._missed = others, file, missed
        self._kept = _read(file)
        self._found: deque[tuple[int, DrawnResponse]] = deque()
        self._asked: dict[int, tuple[int, str]] = {}
        """Our number of a request and its identification, by the number in the other drawing."""

    def submit(self, requests: Sequence[DrawRequest]) -> range:
        numbers = super().submit(requests)
        missing = []
        for number in numbers:
            request = self.waiting.pop(number)
            asked = fingerprint(request)
            if asked in self._kept:
                self._found.append((number, self._kept[asked]))
            else:
                missing.append((number, asked, request))
        if missing:
            self._missed()
        others = self._others.submit([request for _, _, request in missing])
        self._asked |= {other: (number, asked) for other, (number, asked, _) in zip(others, missing, strict=True)}
        return numbers

    def __iter__(self) -> Iterator[tuple[int, DrawnResponse]]:
        return self._responses(lambda: self._others)

    def rest(self) -> dict[int, DrawnResponse]:
        return dict(self._responses(lambda: self._others.rest().items()))

    def _responses(
        self, drawn: Callable[[], Iterable[tuple[int, DrawnResponse]]]
    ) -> Iterator[tuple[int, DrawnResponse]]:
        while self._found or self._asked:
            yield from self._from_file()
            for other, response in drawn():
                number, asked = self._asked.pop(other)
                line = json.dumps({"asked": asked, "drawn": of_engine(response)})
                with self._file.open("a", encoding="utf-8") as lines:
                    lines.write(f"\n{line}")  # also behind a line that was cut off
                yield number, response
                yield from self._from_file()
        sync(self._file)

    def _from_file(self) -> Iterator[tuple[int, DrawnResponse]]:
        while self._found:
            yield self._found.popleft()


def _read(file: Path) -> dict[str, DrawnResponse]:
    """Return the responses in a file. An incomplete line is ignored, and a conversation in which the environment failed
    is started again.
    """
    kept: dict[str, DrawnResponse] = {}
    for line in file.read_bytes().split(b"\n") if file.exists() else []:
        with contextlib.suppress(ValueError):
            one = json.loads(line)
            if one["drawn"].get("lost") is None:
                kept[one["asked"]] = _as_drawn(**one["drawn"])
    return kept


def _as_drawn(
    turns: Sequence[Mapping[str, Any]] = (), prompt: Mapping[str, Any] | None = None, **fields: Any
) -> DrawnResponse:
    if prompt is not None:
        fields["prompt"] = Prompt(
            tuple(prompt["token_ids"]), turns=[Message(**each) for each in prompt["turns"]],
            template=prompt["template"], lost=prompt["lost"],
        )  # fmt: skip
    return DrawnResponse(turns=tuple(Turn(**each) for each in turns), **fields)


def of_engine(response: DrawnResponse) -> dict[str, Any]:
    """Return a drawer's own data about a response, without the text that `rollouts` added, and without the prompt if it
    is that of the request.
    """
    fields = {name: value for name, value in vars(response).items() if name not in ("prompt", "text", "thought")}
    if not response.turns and response.lost is None:
        return fields
    prompt = vars(response.prompt) | {"turns": [each.model_dump() for each in response.prompt.turns]}
    return fields | {"turns": [vars(each) for each in response.turns], "prompt": prompt}


def fingerprint(request: DrawRequest) -> str:
    """Return a hash of everything that determines the response, except the weights, whose version each response has."""
    sampling = request.sampling.model_dump(exclude={"batch_size"})
    parts = [list(request.prompt.token_ids), sampling, request.seed, request.row, repr(request.early)]
    if request.sample is not None:
        parts += [request.sample.model_dump_json(), request.group]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Draws:
    """Draws of a training, each stored in a separate file. One may be made in a thread; meanwhile no other is made. The
    object is a context manager, which ends the thread.
    """

    def __init__(
        self, drawer: Drawer, folder: Path, rank: int, talking: Callable[[Drawer], Drawer] = lambda drawer: drawer
    ) -> None:
        """Create the draws. `folder` is the stage's. talking: function that may turn a drawer of turns into a drawer of
        conversations; both are stored.
        """
        self._drawer, self._folder, self._rank, self._talking = drawer, folder / FOLDER, rank, talking
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def of(self, number: int) -> Drawer:
        """Return the drawer of an iteration, after the draw in the thread has finished. Raises the thread's error."""
        self.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._folder.mkdir(parents=True, exist_ok=True)
        # what a killed process drew for later iterations was of another policy
        later = functools.partial(self._delete, lambda each: each > number)
        file = self._folder / f"{self._rank}-{number}.jsonl"
        turns = Kept(self._drawer, file, later)
        talker = self._talking(turns)
        return turns if talker is turns else Kept(talker, file, later)

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
        """Wait until no draw is running. Raises `KeyboardInterrupt` if the run is to stop."""
        while self._thread is not None and self._thread.is_alive():
            stops.point()
            self._thread.join(0.1)
        self._thread = None

    def forget(self, before: int) -> None:
        """Delete the responses of iterations before this one."""
        self._delete(lambda each: each < before)

    def _delete(self, chosen: Callable[[int], bool]) -> None:
        for file in self._folder.glob(f"{self._rank}-*.jsonl"):
            if chosen(int(file.stem.partition("-")[2])):
                file.unlink()

    def __enter__(self) -> Draws:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the thread. If its engine does not check `stops.point`, it ends when the engine is closed."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive() and thread.ident is not None:
            stops.ask(thread.ident)
            thread.join(END)
            if not thread.is_alive():
                stops.forget(thread.ident)  # it ended before it was asked
