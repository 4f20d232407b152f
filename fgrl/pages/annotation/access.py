"""Who may ask the annotation server for what: token links, sessions, and the server's own addresses.

A link starts a session and is sent once. A session has two random secrets: one in a cookie, which no script can read,
and one that the page keeps and sends as `X-Session`. A browser sends a cookie to every port of the host, so the cookie
alone opens nothing; what the page keeps is read by no page of another port, and a link that is opened later in the same
browser changes nothing for a page that is open. Only hashes are stored.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import urlsplit

from fgrl.base.errors import FgrlError

SESSION_SECONDS = 12 * 3600.0
"""How long a session lasts after its last request. The browser forgets its cookie when it is closed."""
NOTED_EVERY = 600.0
"""Seconds after which the use of a session is stored again."""


def new_token() -> str:
    """256 random bits, as text for an address."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True)
class Session:
    """What is stored of an annotator's session."""

    id: str
    annotator: str
    cookie: bytes
    """Hash of the cookie's value."""
    page: bytes
    """Hash of what the page keeps."""
    used: float
    """Seconds since 1970, of the last request that was noted."""


class Kept(Protocol):
    """Where sessions outlive the server: the store."""

    def sessions(self) -> Iterable[Session]:
        """All that are stored."""

    def keep_sessions(self, sessions: Iterable[Session]) -> None:
        """Store these, and no others."""


class Sessions:
    """Whose session is it?

    Args:
        hashes: of each annotator's link, by name.
        cookie: beginning of the cookies' names; each session has its own, so that none replaces another.
        kept: where they are stored; None: nowhere.

    """

    def __init__(
        self, hashes: Mapping[str, bytes], cookie: str, kept: Kept | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.hashes, self.cookie, self._kept, self._clock = hashes, cookie, kept, clock
        self._sessions = {session.id: session for session in (kept.sessions() if kept is not None else ())}

    def annotator(self, token: str) -> str | None:
        """Return the annotator whose link has this token. Takes the same time whatever the token is."""
        hash, whose = token_hash(token), None
        for name, stored in self.hashes.items():
            if hmac.compare_digest(hash, stored):
                whose = name
        return whose

    def begin(self, annotator: str, *, secure: bool) -> tuple[str, str]:
        """Return a new session: `Set-Cookie`, and what the page keeps and sends as `X-Session`."""
        id, cookie, page = secrets.token_hex(8), new_token(), new_token()
        now = self._clock()
        self._sessions[id] = Session(id, annotator, token_hash(cookie), token_hash(page), now)
        self._store(now)
        line = f"{self.cookie}_{id}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        return f"{line}; Secure" if secure else line, f"{id}.{page}"

    def find(self, kept: str, cookies: Mapping[str, str]) -> str | None:
        """Return the annotator whose session has both what its page keeps and its cookie."""
        id, _, page = kept.partition(".")
        session, now = self._sessions.get(id), self._clock()
        if session is None or session.annotator not in self.hashes or now - session.used > SESSION_SECONDS:
            return None
        given = cookies.get(f"{self.cookie}_{id}", "")
        right = [
            hmac.compare_digest(token_hash(given), session.cookie),
            hmac.compare_digest(token_hash(page), session.page),
        ]
        if not all(right):
            return None
        if now - session.used > NOTED_EVERY:
            self._sessions[id] = replace(session, used=now)
            with suppress(FgrlError):  # a busy store or a full disk: the session goes on, and is noted the next time
                self._store(now)
        return session.annotator

    def _store(self, now: float) -> None:
        """Forget the sessions that have ended, and store the others."""
        self._sessions = {id: each for id, each in self._sessions.items() if now - each.used <= SESSION_SECONDS}
        if self._kept is not None:
            self._kept.keep_sessions(self._sessions.values())


@dataclass(frozen=True)
class Address:
    """Where the server can be reached."""

    host: str
    """What it is bound to."""
    port: int
    public: str | None = None
    """Its address behind a proxy, as in `https://annotate.example.org`."""

    @property
    def url(self) -> str:
        """The beginning of links, without a slash at the end."""
        if self.public is not None:
            return self.public
        host = "127.0.0.1" if self.host == "0.0.0.0" else "::1" if self.host == "::" else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def local(self) -> bool:
        """Can it be reached from this machine alone?"""
        return _is_loopback(self.host)

    def allows_host(self, header: str) -> bool:
        """Is it an address of this server? Names are known ones; numbers cannot be rebound by DNS, so that a server for
        the network allows any of them. The port may be another one: a tunnel's.
        """
        if self.public is not None and header == urlsplit(self.public).netloc:
            return True
        try:
            parts = urlsplit(f"//{header}")
            host, _port = parts.hostname, parts.port  # raises for what is no port
        except ValueError:
            return False
        if host is None or parts.path or parts.query or parts.fragment or parts.username is not None:
            return False
        if host == self.host.lower() or host == "localhost" or _is_loopback(host):
            return True
        return not self.local and _is_number(host)

    def allows_origin(self, origin: str, host: str) -> bool:
        """Is it the page's own origin, for a request to the host that it names?"""
        if self.public is not None and (origin == self.public or host == urlsplit(self.public).netloc):
            return origin == self.public
        return origin == f"http://{host}"


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
