"""Annotations of one set of samples, in one SQLite file in which revisions are only added.

A write is one transaction: when the call returns, it is on the disk (write-ahead log, `synchronous=FULL`) and survives
a kill of the process and a crash of the machine. Saving the same thing twice stores it once, so a client may repeat a
request that was not answered. Saving on top of a version that is not the newest is a `Conflict` and changes nothing.
The table `revisions` refuses changes and deletions, so all earlier versions stay readable. The file must be on a local
disk: SQLite's log does not work on a network file system.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic_core import PydanticSerializationError

from fgrl.base.errors import DataError, DiskError, FgrlError
from fgrl.base.visible import HIDDEN, quantity
from fgrl.feedback.page_settings import PageSettings
from fgrl.pages.annotation import leases
from fgrl.pages.annotation.access import Session
from fgrl.pages.annotation.leases import LEASE_SECONDS, LEASES_EACH, Listed, Progress
from fgrl.pages.annotation.revisions import ItemState, Kind, Refused, Revision, canonical, checked, state_of
from fgrl.types import Sample

APPLICATION = 0x6667616E
"""SQLite application id that marks a file as a store of annotations ("fgan")."""
FORMAT = 1
"""Version of the tables."""
WAIT = 5.0
"""Seconds to wait for another process that is writing."""
LONGEST_NAME = 100
"""Maximum number of characters of an annotator's name."""
COMPARED = ("span", "answers", "verdict", "cannot_judge")
"""Kinds of revision for which an import must have the same version as the store."""

_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE settings (number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE annotators (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, added TEXT NOT NULL, token BLOB
) STRICT;
CREATE TABLE items (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, wanted INTEGER, sample TEXT NOT NULL) STRICT;
CREATE TABLE leases (
    item INTEGER NOT NULL REFERENCES items (number), annotator INTEGER NOT NULL REFERENCES annotators (number),
    expires REAL NOT NULL, PRIMARY KEY (item, annotator)
) STRICT, WITHOUT ROWID;
CREATE TABLE revisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    item INTEGER NOT NULL REFERENCES items (number),
    annotator INTEGER NOT NULL REFERENCES annotators (number),
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    body TEXT NOT NULL,
    UNIQUE (annotator, item, kind, key, version)
) STRICT;
CREATE INDEX done_by_item ON revisions (item, annotator) WHERE kind = 'done';
CREATE TRIGGER revisions_never_change BEFORE UPDATE ON revisions
BEGIN SELECT RAISE(ABORT, 'revisions are never changed'); END;
CREATE TRIGGER revisions_never_go BEFORE DELETE ON revisions
BEGIN SELECT RAISE(ABORT, 'revisions are never deleted'); END;
CREATE VIEW finished AS SELECT item, annotator FROM revisions AS newest WHERE kind = 'done' AND body = '{"done":true}'
AND version = (SELECT max(version) FROM revisions AS own
    WHERE own.annotator = newest.annotator AND own.item = newest.item AND own.kind = 'done' AND own.key = '');
"""
_SESSIONS = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, annotator INTEGER NOT NULL REFERENCES annotators (number), cookie BLOB NOT NULL, page BLOB NOT NULL,
    used REAL NOT NULL
) STRICT, WITHOUT ROWID
"""
"""Table of sessions. It is not in `_TABLES`, because stores of earlier versions get it when they are opened."""
_REVISIONS = """
SELECT items.id, annotators.name, kind, key, version, time, body FROM revisions
JOIN items ON items.number = revisions.item JOIN annotators ON annotators.number = revisions.annotator
"""


class Thing(NamedTuple):
    """Key of a series of revisions: a span, the answers about a response, a verdict, ... of one annotator."""

    item: int
    annotator: int
    kind: Kind
    key: str


class Conflict(FgrlError):
    """A newer version, `current`, was saved by another annotator, or by the same one in another tab."""

    def __init__(self, current: Revision | None) -> None:
        super().__init__(
            "there is a newer version" if current else "the version on which this is based does not exist in the store"
        )
        self.current = current
        """Newest revision; None if there is no revision."""


class NotGiven(FgrlError):
    """The annotator was never given this item, and it is not available now."""


class Busy(DataError):
    """Another process has been writing to the store for longer than `WAIT`."""


class Store:
    """Existing store; `Store.create` makes a new one. Threads may share it.

    `clock` returns the seconds since 1970. All methods raise `DataError` for a file that is missing, damaged, of
    another program or of a newer version, `Busy` when another process holds it, and `DiskError` when it cannot be
    opened or the disk is full.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        if not path.exists():
            raise DataError(f"{path}: there is no such store; `fgrl annotate serve SAMPLES --store {path}` creates it")
        self.path = path
        self._clock = clock
        self.leases_each = LEASES_EACH
        """Maximum number of items that one annotator holds at a time."""
        self._lock = threading.RLock()
        self._sample = lru_cache(maxsize=64)(self._read_sample)
        with _explained(path):
            self._database = _connect(path)
            try:
                _check_format(self._database, path)
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute(_SESSIONS)
                self._load()
            except BaseException:
                self._database.close()
                raise

    @classmethod
    def create(
        cls,
        path: Path,
        samples: Iterable[Sample],
        settings: PageSettings,
        annotators: Iterable[str] = (),
        overlap: int = 0,
        *,
        each: int = 1,
        seed: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Return a new store for these samples. Raises `DataError` if the file already has content.

        overlap: number of randomly drawn items that every annotator annotates. each: annotators per other item. seed:
        seed of this draw, and of the order in which each annotator is shown the responses of an item.
        """
        names = list(dict.fromkeys(checked_name(name) for name in annotators))
        lines = _lines(samples, settings)
        numbers = range(1, len(lines) + 1)
        common = set(random.Random(f"overlap:{seed}").sample(numbers, min(max(overlap, 0), len(lines))))
        moment = _iso(clock())
        about = {
            "id": secrets.token_hex(4), "samples": _digest(line for _id, line in lines), "created": moment,
            "overlap": str(overlap), "each": str(each), "seed": str(seed),
        }  # fmt: skip
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(
                f"{path.parent}: no folder can be made there ({error.strerror}): choose another --store"
            ) from None
        with _explained(path):
            database = _connect(path, create=True)
            try:
                database.execute("BEGIN EXCLUSIVE")
                if database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
                    raise DataError(f"{path}: the file exists and is not empty: choose another name for a new store")
                for statement in _statements(_TABLES):
                    database.execute(statement)
                database.executemany("INSERT INTO about VALUES (?, ?)", about.items())
                database.execute(
                    "INSERT INTO settings (time, body) VALUES (?, ?)", (moment, settings.model_dump_json())
                )
                database.executemany("INSERT INTO annotators (name, added) VALUES (?, ?)", ((n, moment) for n in names))
                database.executemany(
                    "INSERT INTO items VALUES (?, ?, ?, ?)",
                    (
                        (number, id, None if number in common else each, line)
                        for number, (id, line) in zip(numbers, lines, strict=True)
                    ),
                )
                database.execute(f"PRAGMA application_id = {APPLICATION}")
                database.execute(f"PRAGMA user_version = {FORMAT}")
                database.execute("COMMIT")
            finally:
                database.close()
        return cls(path, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Stored work stays stored."""
        with self._lock:
            self._database.close()

    # -- what the store is about ---------------------------------------------------------------------------------------

    @property
    def items(self) -> list[str]:
        """Return the ids of the samples, in their order."""
        return list(self._items)

    @property
    def annotators(self) -> list[str]:
        """Return the names of the annotators, in the order in which they were added."""
        with self._reading() as database:
            return [name for (name,) in database.execute("SELECT name FROM annotators ORDER BY number")]

    @property
    def settings(self) -> PageSettings:
        """Return the newest settings of the page."""
        with self._reading() as database:
            (body,) = database.execute("SELECT body FROM settings ORDER BY number DESC LIMIT 1").fetchone()
        return PageSettings.model_validate_json(body)

    def sample(self, item: str) -> Sample:
        """Return the sample of an item, as it was given to `create`. Raises `DataError` for an unknown item."""
        return self._sample(self._item(item))

    def shown(self, item: str) -> list[int]:
        """Return the places of the responses of an item that the page shows."""
        return shown_places(self.sample(item), self.settings)

    def check_samples(self, samples: Iterable[Sample]) -> None:
        """Raise `DataError` unless these are the samples for which the store was created."""
        if _digest(line for _id, line in _lines(samples, self.settings)) != self._digest:
            raise DataError(
                f"{self.path}: the store was created for other samples: give those, or choose another file with --store"
            )

    def set_settings(self, settings: PageSettings) -> bool:
        """Use other settings from now on; the earlier ones stay stored. Return True if they differ from the newest
        stored settings.

        Raises `DataError` if they show another number of responses.
        """
        current = self.settings
        if settings == current:
            return False
        if settings.modes.responses != current.modes.responses:
            raise DataError(
                f"{self.path}: the store was created with modes.responses: {current.modes.responses}, and the settings ask "
                f"for {settings.modes.responses}: choose another file with --store"
            )
        with self._writing() as database:
            database.execute(
                "INSERT INTO settings (time, body) VALUES (?, ?)", (self._now(), settings.model_dump_json())
            )
        return True

    def add_annotators(self, names: Iterable[str]) -> list[str]:
        """Add the annotators that are new, and return their names. Raises `DataError` for an invalid name."""
        known = self.annotators
        new = [name for name in dict.fromkeys(map(checked_name, names)) if name not in known]
        if new:
            with self._writing() as database:
                self._add_names(database, new)
        return new

    def token_hashes(self) -> dict[str, bytes]:
        """Return the hashes of the annotators' tokens by name, for annotators that have a token."""
        with self._reading() as database:
            return dict(database.execute("SELECT name, token FROM annotators WHERE token IS NOT NULL ORDER BY number"))

    def set_token_hashes(self, hashes: Mapping[str, bytes]) -> None:
        """Replace the hashes of these annotators, and end their sessions."""
        rows = [(hash, self._annotator(name)) for name, hash in hashes.items()]
        with self._writing() as database:
            database.executemany("UPDATE annotators SET token = ? WHERE number = ?", rows)
            database.executemany("DELETE FROM sessions WHERE annotator = ?", ((number,) for _hash, number in rows))

    def sessions(self) -> list[Session]:
        """Return the annotators' sessions."""
        query = "SELECT id, name, cookie, page, used FROM sessions JOIN annotators ON annotators.number = sessions.annotator"
        with self._reading() as database:
            return [Session(*row) for row in database.execute(query)]

    def keep_sessions(self, sessions: Iterable[Session]) -> None:
        """Store these sessions, and no others."""
        rows = [(each.id, self._annotator(each.annotator), each.cookie, each.page, each.used) for each in sessions]
        with self._writing() as database:
            database.execute("DELETE FROM sessions")
            database.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", rows)

    # -- revisions -----------------------------------------------------------------------------------------------------

    def append(
        self, item: str, annotator: str, kind: Kind, key: str, body: Mapping[str, Any], base: int | None = None
    ) -> int:
        """Add a revision and return its version. It is on the disk when this returns.

        base: version that it replaces, 0 for something new. The same body on top of the same base is stored once and
        has the same version, however often it is sent. None: replace the newest version, and store nothing if that is
        the same.

        Raises `Refused` for a body that does not fit the item, and `Conflict` if the newest version is another one.
        """
        text = canonical(checked(kind, key, body, self.sample(item)))
        with self._writing() as database:
            return self._append(database, Thing(self._item(item), self._annotator(annotator), kind, key), text, base)

    def add(self, revisions: Iterable[Revision]) -> int:
        """Add first revisions that were made elsewhere, with their times and annotators: all of them or none. Return
        the number of added revisions.

        Revisions that the store already has are skipped, and the store keeps its own orders, times, decisions and marks
        of finished items. Raises `DataError` for a revision that does not fit its sample, and for a revision that
        differs from the store's.
        """
        revisions = list(revisions)
        with self._writing() as database:
            self._add_names(database, [checked_name(revision.annotator) for revision in revisions])
            return sum(self._add(database, revision) for revision in revisions)

    def revisions(self, item: str | None = None, annotator: str | None = None) -> Iterator[Revision]:
        """Return all revisions, or the revisions of an item or of an annotator, in the order in which they were stored."""
        asked = {} if item is None else {"item": self._item(item)}
        asked |= {} if annotator is None else {"annotator": self._annotator(annotator)}
        own = " AND ".join(["true", *(f"{name} = :{name}" for name in asked)])
        with self._reading() as database:
            rows = database.execute(f"{_REVISIONS} WHERE {own} ORDER BY revisions.number", asked).fetchall()
        return map(_revision, rows)

    def state(self, item: str, annotator: str) -> ItemState:
        """Return an annotator's current record of an item."""
        return state_of(self.revisions(item, annotator))

    # -- what annotators do --------------------------------------------------------------------------------------------

    def offer(self, annotator: str, after: str | None = None, *, lease: float = LEASE_SECONDS) -> str | None:
        """Lease the next item to an annotator and return it, or None if no item is left. Without `after`, a started
        item comes first, if there is one; otherwise the items follow in order after `after`.
        """
        who, now = self._annotator(annotator), self._clock()
        behind = None if after is None else self._item(after)
        with self._writing() as database:
            number = leases.next_available(database, who, behind, now)
            if number is None:
                return None
            self._give(database, number, who, now, lease)
        return self._items[number - 1]

    def open(self, item: str, annotator: str, *, lease: float = LEASE_SECONDS) -> ItemState:
        """Return the record of an item for its annotator, with a lease when it is available. Raises `NotGiven`."""
        number, who, now = self._item(item), self._annotator(annotator), self._clock()
        with self._writing() as database:
            if leases.is_available(database, number, who, now):
                self._give(database, number, who, now, lease)
            elif not leases.is_given(database, number, who):
                raise NotGiven("another annotator works on this item")
        return self.state(item, annotator)

    def save(
        self,
        item: str,
        annotator: str,
        kind: Kind,
        key: str,
        body: Mapping[str, Any],
        base: int | None = None,
        *,
        lease: float = LEASE_SECONDS,
    ) -> int:
        """Store a revision like `append`, for an annotator at the page: the item must have been given to the annotator,
        and the same passage must not be marked with the same label already. The lease is extended.

        Also raises `NotGiven`. An expired lease is not a reason to refuse: the work is stored.
        """
        text = canonical(checked(kind, key, body, self.sample(item)))
        number, who, now = self._item(item), self._annotator(annotator), self._clock()
        with self._writing() as database:
            if not leases.is_given(database, number, who):
                raise NotGiven("this item was not given to you: open it first")
            version = self._append(database, Thing(number, who, kind, key), text, base, distinct=True)
            if kind == "done" and body["done"]:
                leases.end(database, number, who)
            elif leases.is_available(database, number, who, now):
                leases.take(database, number, who, now, lease, self.leases_each)
        return version

    def release(self, item: str, annotator: str) -> None:
        """End the lease of an item, so that it can be offered to others."""
        number, who = self._item(item), self._annotator(annotator)
        with self._writing() as database:
            leases.end(database, number, who)

    def listing(self, annotator: str) -> list[tuple[str, Listed]]:
        """Return (item, its state) for the items that the annotator has started, finished or leased."""
        with self._reading() as database:
            listed = leases.listing(database, self._annotator(annotator), self._clock())
        return [(self._items[own.number - 1], own) for own in listed]

    def progress(self, annotator: str) -> Progress:
        """Return the progress of an annotator."""
        with self._reading() as database:
            return leases.progress(database, self._annotator(annotator), self._clock())

    # -- inside --------------------------------------------------------------------------------------------------------

    def number_of(self, item: str) -> int:
        """Return the place of an item, counted from 1, which is used in addresses of the server."""
        return self._item(item)

    def item_at(self, number: int) -> str:
        """Return the item with this number. Raises `UnknownItem`."""
        if not 1 <= number <= len(self._items):
            raise UnknownItem(f"{self.path}: there is no item number {number}")
        return self._items[number - 1]

    def _load(self) -> None:
        """Read the contents of the store that never change."""
        about = dict(self._database.execute("SELECT name, value FROM about"))
        self.id: str = about["id"]
        """Eight random hexadecimal digits, the same for the life of the store."""
        self.overlap, self.each, self.seed = (int(about[name]) for name in ("overlap", "each", "seed"))
        """Number of items for everybody, number of annotators of each other item, and the seed of that choice and of
        the responses' orders.
        """
        self._digest: str = about["samples"]
        self._items = [row[0] for row in self._database.execute("SELECT id FROM items ORDER BY number")]
        self._numbers = {id: number for number, id in enumerate(self._items, start=1)}

    def _add_names(self, database: sqlite3.Connection, names: Iterable[str]) -> None:
        rows = [(name, self._now()) for name in names]
        database.executemany("INSERT OR IGNORE INTO annotators (name, added) VALUES (?, ?)", rows)

    def _now(self) -> str:
        return _iso(self._clock())

    def _item(self, item: str) -> int:
        if item not in self._numbers:
            raise UnknownItem(f"{self.path}: there is no item {item!r}")
        return self._numbers[item]

    def _annotator(self, name: str) -> int:
        with self._reading() as database:
            row = database.execute("SELECT number FROM annotators WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise DataError(f"{self.path}: there is no annotator {name!r}: {', '.join(self.annotators) or 'none yet'}")
        return int(row[0])

    def _read_sample(self, number: int) -> Sample:
        with self._reading() as database:
            (line,) = database.execute("SELECT sample FROM items WHERE number = ?", (number,)).fetchone()
        return Sample.model_validate_json(line)

    def _stored(
        self, database: sqlite3.Connection, thing: Thing, version: int | None = None
    ) -> tuple[int, str, str] | None:
        """Return (version, body, time) of this version of a thing, or of the newest version; None if there is none."""
        row: tuple[int, str, str] | None = database.execute(
            "SELECT version, body, time FROM revisions WHERE item = ? AND annotator = ? AND kind = ? AND key = ? "
            "AND version = coalesce(?, version) ORDER BY version DESC LIMIT 1",
            (*thing, version),
        ).fetchone()
        return row

    def _insert(self, database: sqlite3.Connection, thing: Thing, version: int, text: str, moment: str) -> None:
        database.execute(
            "INSERT INTO revisions (time, item, annotator, kind, key, version, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (moment, *thing, version, text),
        )

    def _append(
        self, database: sqlite3.Connection, thing: Thing, text: str, base: int | None, *, distinct: bool = False
    ) -> int:
        newest = self._stored(database, thing)
        version = 0 if newest is None else newest[0]
        if base is None:
            if newest is not None and newest[1] == text:
                return version
            base = version
        if base != version:
            stored = self._stored(database, thing, base + 1)
            if stored is not None and stored[1] == text:
                return base + 1
            raise Conflict(None if newest is None else self._as_revision(thing, newest))
        if distinct and thing.kind == "span":
            _refuse_identical(database, thing, json.loads(text))
        self._insert(database, thing, base + 1, text, self._now())
        return base + 1

    def _as_revision(self, thing: Thing, newest: tuple[int, str, str]) -> Revision:
        version, body, moment = newest
        item, name = self._items[thing.item - 1], self._name_of(thing.annotator)
        return _revision((item, name, thing.kind, thing.key, version, moment, body))

    def _add(self, database: sqlite3.Connection, revision: Revision) -> bool:
        where = f"sample {revision.item}: {revision.kind} {revision.key} by {revision.annotator!r}"
        try:
            text = canonical(checked(revision.kind, revision.key, revision.body, self.sample(revision.item)))
        except Refused as error:
            raise DataError(f"{where}: {error}") from None
        thing = Thing(self._item(revision.item), self._annotator(revision.annotator), revision.kind, revision.key)
        newest = self._stored(database, thing)
        if newest is None and not (thing.kind == "time" and self._has_time(database, thing)):
            self._insert(database, thing, 1, text, revision.time)
            return True
        if newest is not None and newest[1] != text and thing.kind in COMPARED:
            raise DataError(f"{where}: the store has another version of it; import into another store")
        return False

    def _has_time(self, database: sqlite3.Connection, thing: Thing) -> bool:
        query = "SELECT 1 FROM revisions WHERE item = ? AND annotator = ? AND kind = ? LIMIT 1"
        return database.execute(query, thing[:3]).fetchone() is not None

    def _give(self, database: sqlite3.Connection, item: int, annotator: int, now: float, lease: float) -> None:
        """Store a lease, and on the first lease the order in which this annotator is shown the responses."""
        leases.take(database, item, annotator, now, lease, self.leases_each)
        thing = Thing(item, annotator, "order", "")
        if self._stored(database, thing) is None:
            id, name = self._items[item - 1], self._name_of(annotator)
            order = self.shown(id)
            random.Random(f"order:{self.seed}:{name}:{id}").shuffle(order)
            self._append(database, thing, canonical({"order": order}), 0)

    def _name_of(self, annotator: int) -> str:
        (name,) = self._database.execute("SELECT name FROM annotators WHERE number = ?", (annotator,)).fetchone()
        return str(name)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explained(self.path):
            yield self._database

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that is on the disk when the block ends; after an error nothing is stored."""
        with self._lock, _explained(self.path), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database


class UnknownItem(DataError):
    """The store has no such item."""


def is_absent(path: Path) -> bool:
    """Return True if there is no store and no other file, or only the rest of a creation that was killed, in which
    nothing was stored.
    """
    if not path.exists():
        return True
    with _explained(path):
        database = _connect(path)
        try:
            return database.execute("SELECT 1 FROM sqlite_master").fetchone() is None
        finally:
            database.close()


def checked_name(name: str) -> str:
    """Return an annotator's name without surrounding spaces. Raises `DataError` for a name that is empty, too long, or
    has characters that are invisible or change how others are displayed.
    """
    name = name.strip()
    if not name or len(name) > LONGEST_NAME:
        raise DataError(f"an annotator's name has 1 to {LONGEST_NAME} characters, and {name[:LONGEST_NAME]!r} does not")
    if HIDDEN.search(name) or "\n" in name or "\t" in name:
        raise DataError(f"the annotator's name {name!r} has an invisible character: write it without")
    return name


def shown_places(sample: Sample, settings: PageSettings) -> list[int]:
    """Return the places of the responses that the page shows: both of two, or the chosen or only one.

    Raises `DataError` for a sample with another number of responses.
    """
    count = len(sample.responses)
    if settings.modes.responses == 2:
        if count != 2:
            raise DataError(
                f"sample {sample.id} has {quantity(count, 'response')}, and the page shows two: draw or keep two, or "
                "set `modes: {responses: 1, preference: false}` in the page's settings"
            )
        return [0, 1]
    if sample.chosen is not None:
        return [sample.chosen]
    if count != 1:
        raise DataError(
            f"sample {sample.id} has {count} responses of which none is chosen, and the page shows one: `chosen` is its place"
        )
    return [0]


def _lines(samples: Iterable[Sample], settings: PageSettings) -> list[tuple[str, str]]:
    """Return (id, JSON) of each sample. Raises `DataError` if there are no samples, if an id occurs twice, and for
    content that cannot be shown or stored.
    """
    lines: dict[str, str] = {}
    for sample in samples:
        shown_places(sample, settings)
        if sample.id in lines:
            raise DataError(f"two samples have the id {sample.id!r}: ids must be unique")
        try:
            lines[sample.id] = sample.model_dump_json(exclude_defaults=True)
        except PydanticSerializationError as error:
            raise DataError(f"sample {sample.id!r} cannot be stored: {error}") from None
    if not lines:
        raise DataError("there is no sample to annotate")
    return list(lines.items())


def _digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def _revision(row: Sequence[Any]) -> Revision:
    """Return a revision from (item, annotator, kind, key, version, time, body)."""
    item, annotator, kind, key, version, moment, body = row
    return Revision.model_construct(
        item=item, annotator=annotator, kind=kind, key=key, version=version, time=moment, body=json.loads(body)
    )


def _refuse_identical(database: sqlite3.Connection, thing: Thing, body: Mapping[str, Any]) -> None:
    """Raise `Refused` if the annotator has already marked the same passage with the same label, because every use of
    the marks would have to choose one of the two.
    """
    if body["deleted"]:
        return
    rows = database.execute(  # of each span the newest revision: SQLite takes the other columns from the row of the maximum
        "SELECT key, body, max(version) FROM revisions WHERE item = ? AND annotator = ? AND kind = ? AND key != ? GROUP BY key",
        thing,
    )
    for _key, other, _version in rows:
        if _passage(json.loads(other)) == _passage(body):
            raise Refused("this passage has the same mark already: change that one")


def _passage(body: Mapping[str, Any]) -> tuple[Any, ...] | None:
    return None if body["deleted"] else (body["place"], body["start"], body["end"], body["label"])


def make_private(path: Path) -> None:
    """Allow only the store's owner to read and write it, if this user is the owner."""
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    if create:  # before anything is in it; SQLite gives its other files the same rights
        with suppress(OSError):  # which SQLite reports below
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    address = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    database = sqlite3.connect(address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA foreign_keys = ON")
    return database


def _check_format(database: sqlite3.Connection, path: Path) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise DataError(f"{path}: an SQLite file, but no store of annotations: choose another file with --store")
    if version > FORMAT:
        raise DataError(
            f"{path}: written by a newer version of fgrl (format {version}, this one reads {FORMAT}): update fgrl"
        )


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, one by one: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert SQLite's errors to errors with a message for the user."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Busy(f"{path}: another program is writing to the store: end it, then try again") from None
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise DiskError(
                f"{path}: the disk is full or fails ({error}): make room and try again; what was acknowledged is stored"
            ) from None
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise DiskError(
                f"{path}: {error}: change the rights of the file and its folder, or choose another --store"
            ) from None
        if code == sqlite3.SQLITE_NOTADB:
            raise DataError(f"{path}: no store of annotations: choose another file with --store") from None
        if code == sqlite3.SQLITE_CORRUPT:
            raise DataError(
                f"{path}: the store is damaged ({error}): keep a copy, and import your newest export into a new store "
                "(`fgrl annotate import`)"
            ) from None
        raise
