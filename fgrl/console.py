"""Messages and progress (with a rate and an ETA) on stderr.

At a terminal the progress is a live line (rich). Anywhere else it is a plain line every few seconds, so that a log file
stays readable. stdout is never touched here: it carries results.

What arrives here may contain text of models, data and endpoints, so nothing of it can move the cursor or hide
(`visible`), and secrets are left out (`hide`).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from fgrl import lazy
from fgrl.sanitizing import hide
from fgrl.visible import visible

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import Progress, TaskID
rich_console = lazy.load("rich.console")
rich_progress = lazy.load("rich.progress")
rich_table = lazy.load("rich.table")

PLAIN_EVERY = 5.0
"""Seconds between plain progress lines."""


def duration(seconds: float) -> str:
    """Seconds for people: `8.3s`, `2:05`, `1:02:05`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{whole}s" if whole < 60 else f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def shown(value: float | str) -> str:
    """Return a number in about four characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return str(value)
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.3g}"


COUNT_RESPONSES = ("responses", "answers of", "calibration responses")
"""Beginnings of the names of progress lines whose steps are responses."""
_open: list[Ticking] = []
"""The progress lines that are open, the innermost last."""
_listening: list[Console] = []
"""The consoles of the runs that are under way, the innermost last."""


def remark(text: str) -> None:
    """Print a line that -q does not silence, at the console of the run that is under way, if there is one."""
    (_listening[-1] if _listening else Console()).alert(text)


@contextmanager
def listening(console: Console) -> Iterator[None]:
    """While the block runs, `console` gets the remarks."""
    _listening.append(console)
    try:
        yield
    finally:
        _listening.remove(console)


def drawn(share: float, responses: int) -> None:
    """Report the progress of drawing responses, between 0 and 1, with the `responses` of one call: so the open progress
    line has an ETA before its first batch is done. Nothing happens where no line is open.
    """
    if _open:
        _open[-1].draw(share, responses)


class Ticking:
    """Counts steps and knows its rate. `advance(8, reward=0.3)` also sets what is shown behind the count."""

    def __init__(self, what: str, total: int, done: int, notify: Any) -> None:
        self.what, self.total, self.done, self.first = visible(hide(what)), total, done, done
        self.part = 0.0
        """Progress of the call that draws responses now, from 0 to 1."""
        self._part_steps = 0
        """The steps that this call will complete; 0 where a step is something else than a response."""
        self.task: TaskID | None = None
        """Length of the live line."""
        self.began = time.monotonic()
        self.numbers: dict[str, float | str] = {}
        self._notify = notify

    def advance(self, steps: int = 1, **numbers: float | str) -> None:
        self.done += steps
        self.part, self._part_steps = 0.0, 0
        self.numbers.update(numbers)
        self._notify(self)

    def draw(self, share: float, responses: int) -> None:
        """See `drawn`."""
        counted = self.what.rpartition("· ")[2].startswith(COUNT_RESPONSES)
        self.part = share
        self._part_steps = min(responses, self.total - self.done) if counted else 0
        self._notify(self)

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def pace(self) -> str:
        """`3.4/s  ETA 1:23`; empty before anything was done in this process."""
        done = self.done + self.part * self._part_steps
        steps = done - self.first
        if steps <= 0:
            return ""
        each = max(self.elapsed(), 1e-9) / steps
        rate = f"{each:.1f}s each" if each >= 1 else f"{1 / each:.1f}/s"
        left = max(self.total - done, 0)
        return f"{rate}  ETA {duration(left * each)}" if left else rate

    @property
    def tail(self) -> str:
        return visible(hide("  ".join(f"{name} {shown(value)}" for name, value in self.numbers.items())))

    @property
    def drawing(self) -> str:
        """`drawing 45%` while responses are drawn."""
        return f"drawing {self.part:.0%}" if 0 < self.part < 1 else ""

    def line(self) -> str:
        parts = (self.what, f"{self.done:,}/{self.total:,}", self.drawing, self.pace, self.tail)
        return "  ".join(part for part in parts if part)


class Console:
    """Messages and progress of a run.

    `log` is a text file that gets everything with a time stamp, including what `quiet` keeps off the terminal.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, stream: TextIO | None = None) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.stream = stream or sys.stderr
        self.log: TextIO | None = None
        self.prefix = ""
        self.live = self.stream.isatty() and not quiet
        self._rich: RichConsole | None = None
        self._bars: Progress | None = None
        self._last_plain = time.monotonic()

    def note(self, text: str) -> None:
        """To the log file only (and to the terminal with -v)."""
        self._to_log(text)
        if self.verbose:
            self._to_terminal(text)

    def say(self, text: str) -> None:
        """One line for the person at the terminal."""
        self._to_log(text)
        if not self.quiet:
            self._to_terminal(text)

    def alert(self, text: str) -> None:
        """Print a line that -q does not silence."""
        self._to_log(text)
        self._to_terminal(text)

    @contextmanager
    def progress(self, what: str, total: int, done: int = 0) -> Iterator[Ticking]:
        """Show a progress line until the block ends; blocks may nest."""
        ticker = Ticking(f"{self.prefix}{what}", total, done, self._tick)
        _open.append(ticker)
        try:
            with self._bar(ticker) if self.live else self._plain(ticker):
                yield ticker
        finally:
            _open.remove(ticker)

    # -- plain ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _plain(self, ticker: Ticking) -> Iterator[None]:
        yield
        if ticker.elapsed() >= PLAIN_EVERY:
            self.say(f"{ticker.line()}  in {duration(ticker.elapsed())}")
            self._last_plain = time.monotonic()

    def _tick(self, ticker: Ticking) -> None:
        if self._bars is not None and ticker.task is not None:
            self._bars.update(ticker.task, completed=ticker.done)
        if ticker.done >= ticker.total:
            return  # the last line follows when the block ends
        now = time.monotonic()
        if now - self._last_plain >= PLAIN_EVERY and min(ticker.elapsed(), now) >= PLAIN_EVERY / 2:
            self._last_plain = now
            if self.live:
                self._to_log(ticker.line())
            else:
                self.say(ticker.line())

    # -- live ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _bar(self, ticker: Ticking) -> Iterator[None]:
        outermost = self._bars is None
        if self._bars is None:
            self._bars = _bars(self._console())
            self._bars.start()
        bars = self._bars
        ticker.task = bars.add_task(ticker.what, total=ticker.total, completed=ticker.done, ticker=ticker)
        try:
            yield
        finally:
            bars.remove_task(ticker.task)
            if outermost:
                bars.stop()
                self._bars = None
            self._to_log(f"{ticker.line()}  in {duration(ticker.elapsed())}")

    # -- out -----------------------------------------------------------------------------------------------------------

    def _console(self) -> RichConsole:
        if self._rich is None:
            self._rich = rich_console.Console(file=self.stream, highlight=False, soft_wrap=True)
        return self._rich

    def _to_terminal(self, text: str) -> None:
        if self._bars is not None:
            self._console().print(visible(hide(text)), markup=False)
        else:
            self.stream.write(visible(hide(text)) + "\n")
            self.stream.flush()

    def _to_log(self, text: str) -> None:
        if self.log is not None:
            stamp = datetime.now(UTC).strftime("%H:%M:%S")
            try:
                self.log.write("".join(f"{stamp} {line}\n" for line in visible(hide(text)).splitlines() or [""]))
                self.log.flush()
            except OSError as error:
                log, self.log = self.log, None
                with suppress(OSError):  # closing writes what is left
                    log.close()
                self._to_terminal(f"run.log ends here: {error.strerror}")


def _bars(console: RichConsole) -> Progress:
    """Spinner, name, bar, count, pace, numbers; read from the ticker whenever the line is drawn."""

    def column(text: str, style: str = "") -> Any:
        cell = rich_table.Column(no_wrap=True, overflow="ellipsis")
        return rich_progress.TextColumn(text, style=style, markup=False, table_column=cell)

    return rich_progress.Progress(
        rich_progress.SpinnerColumn(),
        column("{task.description}"),
        rich_progress.BarColumn(bar_width=12),
        column("{task.completed:,}/{task.total:,}"),
        column("{task.fields[ticker].drawing}"),
        column("{task.fields[ticker].pace}", "cyan"),
        column("{task.fields[ticker].tail}", "green"),
        console=console,
        transient=True,
        refresh_per_second=5,
    )
