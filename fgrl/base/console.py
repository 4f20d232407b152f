"""Messages and progress (with a rate and an ETA) on stderr.

At a terminal the progress is a live line (rich). In a pipe it is a plain line every few seconds, in a file twice a
minute, so that a log stays readable. Nothing is written to stdout, which is reserved for results.

Messages may contain text of models, data and endpoints. Therefore hidden and control characters are replaced
(`visible`), and secrets are removed (`hide`).
"""

from __future__ import annotations

import math
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from fgrl.base import lazy
from fgrl.base.sanitizing import hide
from fgrl.base.visible import visible

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import Progress, TaskID
rich_console = lazy.load("rich.console")
rich_progress = lazy.load("rich.progress")
rich_table = lazy.load("rich.table")

EVERY, LOG_EVERY, BEAT = 5.0, 30.0, 3.5
"""Intervals in seconds: between progress lines on a terminal; between lines in a log file such as `run.log`; and the
silence after which a terminal repeats the current phase. The last one leaves room for its own delays, so that a
terminal is never silent for as long as the first.
"""
SHOWN_ROWS = 6
"""Number of the last rows of numbers that are shown below the live progress lines."""


def duration(seconds: float) -> str:
    """Format a duration for people: `8.3s`, `2:05`, `1:02:05`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{whole}s" if whole < 60 else f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def shown(value: float | str) -> str:
    """Format a number with about four characters."""
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
"""Prefixes of the names of progress lines that count responses."""
_open: list[Ticking] = []
"""Open progress lines, the innermost last."""
_listening: list[Console] = []
"""Consoles of the current runs, the innermost last."""


def remark(text: str) -> None:
    """Print a line at the console of the current run, if there is one. The option -q does not silence it."""
    (_listening[-1] if _listening else Console()).alert(text)


@contextmanager
def listening(console: Console) -> Iterator[None]:
    """Send remarks to `console` while the block runs."""
    _listening.append(console)
    try:
        with console.beating():
            yield
    finally:
        _listening.remove(console)


def drawn(share: float, responses: int) -> None:
    """Report progress between 0 and 1 within one call that draws `responses`, so that the open progress line has an ETA
    before its first batch is done. Does nothing if no line is open.
    """
    if _open:
        _open[-1].draw(share, responses)


def phase(name: str) -> None:
    """Name the current activity, for example "scoring". The open progress line shows it until its next step. If no line
    is open, the console of the current run shows it until one opens.
    """
    if _open:
        _open[-1].enter(name)
    elif _listening:
        _listening[-1].enter(name)


class Ticking:
    """Counter of steps that measures their rate. `advance(8, reward=0.3)` also sets the numbers that are shown after
    the count.
    """

    def __init__(self, what: str, total: int, done: int, notify: Any, console: Console | None = None) -> None:
        self.console = console
        self.what, self.total, self.done, self.first = visible(hide(what)), total, done, done
        self.part = 0.0
        """Progress of the call that draws responses at the moment, from 0 to 1."""
        self._part_steps = 0
        """Number of steps that this call will complete; 0 if a step is not a response."""
        self.task: TaskID | None = None
        """Task of the live progress line."""
        self.began = time.monotonic()
        self.numbers: dict[str, float | str] = {}
        self.rows: list[tuple[int, dict[str, float | str]]] = []
        """Last steps that reported numbers."""
        self._phase, self._since = "", self.began
        self._notify = notify

    def advance(self, steps: int = 1, **numbers: float | str) -> None:
        self.done += steps
        self.part, self._part_steps, self._phase = 0.0, 0, ""
        self.numbers = self.numbers | numbers  # another thread may be reading the old ones
        if numbers:
            self.rows = [*self.rows, (self.done, numbers)][-SHOWN_ROWS:]
        self._notify(self)

    def enter(self, name: str) -> None:
        """Record the name of the current activity and the time at which it began. `phase` calls it for the open line."""
        self.part, self._phase, self._since = 0.0, name, time.monotonic()
        self._notify(self)

    def draw(self, share: float, responses: int) -> None:
        """Record the progress of the call that draws `responses` responses: `share`, from 0 to 1. `drawn` calls it for
        the open line.
        """
        counted = self.what.rpartition("· ")[2].startswith(COUNT_RESPONSES)
        self.part = share
        self._part_steps = min(responses, self.total - self.done) if counted else 0
        self._notify(self)

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def pace(self) -> str:
        """Return the rate and the ETA, as in `3.4/s  ETA 1:23`; empty before this process has completed a step."""
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
        """Return `drawing 45%` while responses are drawn, and for example `scoring 12s` in another phase."""
        if 0 < self.part < 1:
            return f"drawing {self.part:.0%}"
        return f"{self._phase} {duration(time.monotonic() - self._since)}" if self._phase else ""

    def line(self) -> str:
        parts = (self.what, f"{self.done:,}/{self.total:,}", self.drawing, self.pace, self.tail)
        return "  ".join(part for part in parts if part)


class Console:
    """Messages and progress of a run.

    `log` is a text file that receives every message with a time stamp, including those that `quiet` hides from the
    terminal.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, stream: TextIO | None = None) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.stream = stream or sys.stderr
        self.log: TextIO | None = None
        self.prefix = ""
        self.live = self.stream.isatty() and not quiet
        self._in_file = _is_file(self.stream)
        self._rich: RichConsole | None = None
        self._bars: Progress | None = None
        self._doing, self._since = "", time.monotonic()
        self._spoke = self._logged = self._since
        """Times of the last line on the terminal and in the log file."""

    def enter(self, name: str) -> None:
        """Name the current activity outside of progress lines, for example "loading"; "" means that nothing slow is
        running.
        """
        self._doing, self._since = name, time.monotonic()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Repeat the current activity while the block runs, so that a terminal is never silent for longer than `EVERY`
        and a log file never for longer than `LOG_EVERY`.
        """
        over = threading.Event()

        def beat() -> None:
            while not over.wait(0.5):
                self.beat()

        thread = threading.Thread(target=beat, name="fgrl progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def beat(self) -> None:
        """Print the current activity if nothing was printed for too long."""
        own = [ticker for ticker in _open if ticker.console is self]
        if own:
            line = own[-1].line()
        elif self.prefix or self._doing:
            line = f"{self.prefix}{self._doing or 'working'}  {duration(time.monotonic() - self._since)}"
        else:
            return
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY:
            self._to_log(line)
        if now - self._spoke >= (LOG_EVERY if self._in_file else BEAT) and not self.quiet and self._bars is None:
            self._to_terminal(visible(hide(line)))

    def note(self, text: str) -> None:
        """Write a line to the log file. It appears on the terminal only with -v."""
        self._to_log(text)
        if self.verbose:
            self._to_terminal(text)

    def say(self, text: str) -> None:
        """Print one line for the user at the terminal."""
        self._to_log(text)
        if not self.quiet:
            self._to_terminal(text)

    def alert(self, text: str) -> None:
        """Print a line that the option -q does not silence."""
        self._to_log(text)
        self._to_terminal(text)

    @contextmanager
    def progress(self, what: str, total: int, done: int = 0) -> Iterator[Ticking]:
        """Show a progress line until the block ends. Blocks may be nested."""
        ticker = Ticking(f"{self.prefix}{what}", total, done, self._tick, self)
        _open.append(ticker)
        try:
            with self._bar(ticker) if self.live else self._plain(ticker):
                yield ticker
        finally:
            _open.remove(ticker)
            self.enter("")

    # -- plain ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _plain(self, ticker: Ticking) -> Iterator[None]:
        yield
        if ticker.elapsed() >= EVERY:
            self.say(f"{ticker.line()}  in {duration(ticker.elapsed())}")

    def _tick(self, ticker: Ticking) -> None:
        if self._bars is not None and ticker.task is not None:
            self._bars.update(ticker.task, completed=ticker.done)
        if ticker.done >= ticker.total:
            return  # the last line follows when the block ends
        now = time.monotonic()
        if min(ticker.elapsed(), now) < EVERY / 2:
            return
        if now - self._logged >= LOG_EVERY:
            self._to_log(ticker.line())
        if now - self._spoke >= (LOG_EVERY if self._in_file else EVERY) and not self.live and not self.quiet:
            self._to_terminal(ticker.line())

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
        self._spoke = time.monotonic()
        if self._bars is not None:
            self._console().print(visible(hide(text)), markup=False)
        else:
            self.stream.write(visible(hide(text)) + "\n")
            self.stream.flush()

    def _to_log(self, text: str) -> None:
        self._logged = time.monotonic()
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


def _is_file(stream: TextIO) -> bool:
    """Return True if a stream writes to a file on a disk, not to a terminal, a pipe or memory."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # nothing of the operating system is behind it, or it is closed
        return False


def _live_class() -> type[Progress]:
    """Return the class that draws progress lines with the last rows of numbers below them."""

    class Live(rich_progress.Progress):  # type: ignore[misc, name-defined]
        def get_renderables(self) -> Iterator[Any]:
            yield from super().get_renderables()
            tickers: list[Ticking] = [task.fields["ticker"] for task in self.tasks]
            rows = next((ticker.rows for ticker in reversed(tickers) if len(ticker.rows) > 1), [])
            if rows:
                yield _table(rows)

    return Live


def _table(rows: list[tuple[int, dict[str, float | str]]]) -> Any:
    names = list(dict.fromkeys(name for _step, numbers in rows for name in numbers))
    table = rich_table.Table("step", *names, box=None, padding=(0, 2), header_style="dim")
    for step, numbers in rows:
        table.add_row(str(step), *(visible(hide(shown(numbers[name]))) if name in numbers else "" for name in names))
    return table


def _bars(console: RichConsole) -> Progress:
    """Return the columns of a progress line: spinner, name, bar, count, rate, numbers. They are read from the ticker
    whenever the line is drawn.
    """

    def column(text: str, style: str = "") -> Any:
        cell = rich_table.Column(no_wrap=True, overflow="ellipsis")
        return rich_progress.TextColumn(text, style=style, markup=False, table_column=cell)

    return _live_class()(
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
