"""Assignment of items to annotators: leases that expire, so that an item is offered to the required number of
annotators and no more.

An item needs a number of annotators, or all of them. It is available to an annotator who has not finished it, as long
as fewer others than it needs have finished it or hold a lease that has not expired. Leases do not affect annotations:
an annotator who was given an item may save to it at any later time, so work after a lost connection is never refused.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Literal

from fgrl.pages.annotation.revisions import CONTENT

LEASE_SECONDS = 1800.0
"""Seconds that an item stays with its annotator after the last sign of work on it."""

LEASES_EACH = 3
"""Maximum number of items that one annotator holds at a time, in windows that are open side by side."""

_CONTENT = ", ".join(f"'{kind}'" for kind in CONTENT)
_AVAILABLE = """
    NOT EXISTS (SELECT 1 FROM finished WHERE finished.item = items.number AND finished.annotator = :annotator)
    AND (items.wanted IS NULL OR items.wanted > (
        SELECT count(*) FROM (
            SELECT annotator FROM leases
            WHERE leases.item = items.number AND leases.annotator != :annotator AND leases.expires > :now
            UNION
            SELECT annotator FROM finished WHERE finished.item = items.number AND finished.annotator != :annotator
        )
    ))
"""
_BEGUN = f"""
    EXISTS (SELECT 1 FROM revisions
            WHERE revisions.annotator = :annotator AND revisions.item = items.number AND revisions.kind IN ({_CONTENT}))
"""


@dataclass(frozen=True)
class Listed:
    """An item of an annotator."""

    number: int
    state: Literal["new", "started", "done"]
    leased: bool
    cannot_judge: bool = False
    """True if the annotator has said that the item cannot be judged."""


@dataclass(frozen=True)
class Progress:
    """Progress of an annotator, as numbers of items."""

    done: int
    started: int
    """Items that are started and not finished. They count as remaining while they are available."""
    remaining: int
    """Items that are available and not finished."""
    total: int
    """Finished and remaining items."""


def is_available(database: sqlite3.Connection, item: int, annotator: int, now: float) -> bool:
    """Return True if this annotator may be given the item now."""
    query = f"SELECT 1 FROM items WHERE number = :item AND {_AVAILABLE}"
    return database.execute(query, {"item": item, "annotator": annotator, "now": now}).fetchone() is not None


def next_available(database: sqlite3.Connection, annotator: int, after: int | None, now: float) -> int | None:
    """Return the item to offer, or None if no other item is left. Without `after` the items that the annotator has
    started come first; otherwise the items after it, and then the items before it.
    """
    first = f"NOT {_BEGUN}" if after is None else "number < :after"
    query = f"SELECT number FROM items WHERE number IS NOT :after AND {_AVAILABLE} ORDER BY {first}, number LIMIT 1"
    row = database.execute(query, {"annotator": annotator, "after": after, "now": now}).fetchone()
    return None if row is None else int(row[0])


def take(database: sqlite3.Connection, item: int, annotator: int, now: float, seconds: float, most: int) -> None:
    """Give the annotator a lease or extend it, and end all leases but the `most` that were taken or extended last."""
    database.execute(
        "INSERT INTO leases (item, annotator, expires) VALUES (?, ?, ?) "
        "ON CONFLICT (item, annotator) DO UPDATE SET expires = excluded.expires",
        (item, annotator, now + seconds),
    )
    database.execute(
        "DELETE FROM leases WHERE annotator = :annotator AND item NOT IN "
        "(SELECT item FROM leases WHERE annotator = :annotator ORDER BY expires DESC, item DESC LIMIT :most)",
        {"annotator": annotator, "most": most},
    )


def end(database: sqlite3.Connection, item: int, annotator: int) -> None:
    """End the lease, if there is one."""
    database.execute("DELETE FROM leases WHERE item = ? AND annotator = ?", (item, annotator))


def is_given(database: sqlite3.Connection, item: int, annotator: int) -> bool:
    """Return True if the item was ever given to the annotator."""
    query = "SELECT 1 FROM revisions WHERE annotator = ? AND item = ? LIMIT 1"
    return database.execute(query, (annotator, item)).fetchone() is not None


def listing(database: sqlite3.Connection, annotator: int, now: float) -> list[Listed]:
    """Return the items that an annotator has started, finished, or holds a lease of, in the order of the samples."""
    query = f"""
        SELECT number, {_BEGUN},
            EXISTS (SELECT 1 FROM finished WHERE finished.item = number AND finished.annotator = :annotator),
            EXISTS (SELECT 1 FROM leases
                    WHERE leases.item = number AND leases.annotator = :annotator AND leases.expires > :now),
            (SELECT json_extract(body, '$.cannot') FROM revisions
                WHERE item = items.number AND annotator = :annotator AND kind = 'cannot_judge' ORDER BY version DESC LIMIT 1)
        FROM items WHERE number IN (
            SELECT item FROM revisions WHERE annotator = :annotator AND kind IN ({_CONTENT}, 'done')
            UNION SELECT item FROM leases WHERE annotator = :annotator AND expires > :now
        ) ORDER BY number
    """
    rows = database.execute(query, {"annotator": annotator, "now": now})
    return [
        Listed(number, "done" if finished else "started" if begun else "new", bool(leased), bool(cannot))
        for number, begun, finished, leased, cannot in rows
    ]


def progress(database: sqlite3.Connection, annotator: int, now: float) -> Progress:
    """Return the counts for one annotator."""
    values = {"annotator": annotator, "now": now}
    (done,) = database.execute("SELECT count(*) FROM finished WHERE annotator = :annotator", values).fetchone()
    (started,) = database.execute(
        f"SELECT count(*) FROM items WHERE {_BEGUN} AND NOT EXISTS "
        "(SELECT 1 FROM finished WHERE finished.item = items.number AND finished.annotator = :annotator)",
        values,
    ).fetchone()
    (remaining,) = database.execute(f"SELECT count(*) FROM items WHERE {_AVAILABLE}", values).fetchone()
    return Progress(done, started, remaining, done + remaining)
