"""Who works on which item: leases that expire, so that an item is offered to as many annotators as it wants and no
more.

An item wants a number of annotators, or all of them. It is available to an annotator who has not finished it, as long
as fewer others than it wants have finished it or hold a lease that has not expired. Leases change nothing that was
annotated: who was given an item may save to it for ever, and the work of an annotator whose connection was lost is
never refused.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Literal

from fgrl.pages.annotation.revisions import CONTENT

LEASE_SECONDS = 1800.0
"""How long an item stays with its annotator after the last sign of work on it."""

LEASES_EACH = 3
"""Items that one annotator holds at a time: windows that are open beside each other."""

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
    """The annotator has said that the item cannot be judged."""


@dataclass(frozen=True)
class Progress:
    """How far an annotator is."""

    done: int
    started: int
    """Begun and not finished; they count among the remaining ones while they are available."""
    remaining: int
    """Available and not finished."""
    total: int
    """Done and remaining."""


def is_available(database: sqlite3.Connection, item: int, annotator: int, now: float) -> bool:
    """May this annotator be given the item now?"""
    query = f"SELECT 1 FROM items WHERE number = :item AND {_AVAILABLE}"
    return database.execute(query, {"item": item, "annotator": annotator, "now": now}).fetchone() is not None


def next_available(database: sqlite3.Connection, annotator: int, after: int | None, now: float) -> int | None:
    """Return the item to offer. Without `after` those that the annotator has begun come first; else the items behind
    it, and then those before it. None: nothing else is left.
    """
    first = f"NOT {_BEGUN}" if after is None else "number < :after"
    query = f"SELECT number FROM items WHERE number IS NOT :after AND {_AVAILABLE} ORDER BY {first}, number LIMIT 1"
    row = database.execute(query, {"annotator": annotator, "after": after, "now": now}).fetchone()
    return None if row is None else int(row[0])


def take(database: sqlite3.Connection, item: int, annotator: int, now: float, seconds: float, most: int) -> None:
    """Give the annotator a lease, or a longer one, and end all but the `most` leases that were taken or made longer
    last.
    """
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
    """Take the lease back, if there is one."""
    database.execute("DELETE FROM leases WHERE item = ? AND annotator = ?", (item, annotator))


def is_given(database: sqlite3.Connection, item: int, annotator: int) -> bool:
    """Was the item ever given to the annotator?"""
    query = "SELECT 1 FROM revisions WHERE annotator = ? AND item = ? LIMIT 1"
    return database.execute(query, (annotator, item)).fetchone() is not None


def listing(database: sqlite3.Connection, annotator: int, now: float) -> list[Listed]:
    """Return the items that an annotator has begun, finished, or holds a lease of, in the order of the samples."""
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
