"""Report of several mistakes in one file or table."""

from __future__ import annotations

from fgrl.base.errors import DataError

SHOWN = 10
"""Number of mistakes that a message shows in full; further ones are counted."""
LOOKED = 20_000
"""Number of rows that are checked after the first mistake."""


class Mistakes:
    """Collector of the messages about bad rows."""

    def __init__(self, ending: str = "") -> None:
        self.shown: list[str] = []
        self.count = 0
        self._ending = ending
        """Advice at the end of the message, shown once."""
        self._left = LOOKED

    def add(self, message: str) -> None:
        self.count += 1
        if len(self.shown) < SHOWN:
            self.shown.append(message)

    def still_looking(self) -> bool:
        """Return False once enough rows were checked since the first mistake."""
        self._left -= bool(self.count)
        return self._left > 0

    def __bool__(self) -> bool:
        return self.count > 0

    def error(self) -> DataError:
        """Return the error with all mistakes. With a single mistake, it reads as that message alone."""
        lines = list(self.shown)
        if self.count > len(lines):
            lines.append(f"... and {self.count - len(lines):,} more")
        if self.count > 1:
            lines.append(f"{self.count:,} bad rows{'' if self._left > 0 else ' among those looked at'}")
        lines[-1] += self._ending
        return DataError("\n".join(lines))
