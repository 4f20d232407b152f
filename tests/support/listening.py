"""Where a process can be reached."""

from __future__ import annotations

from pathlib import Path

LOOPBACK = "0100007F"
"""127.0.0.1, as the kernel writes it."""


def listening(process: int | str = "self") -> list[str]:
    """The addresses, as the kernel writes them, at which a process waits for connections over TCP."""
    own = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()}
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path("/proc/net", name).read_text().splitlines()[1:]]
    return sorted({row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own})
