"""Access to the annotation server: token links, sessions, and the server's own addresses.

A link starts a session and is sent once. A session has two random secrets: one in a cookie, which no script can read,
and one that the page keeps and sends as `X-Session`. A browser sends a cookie to every port of the host, so the cookie
alone gives no access. Pages of other ports cannot read the page's secret, and a link that is opened later in the same
browser does not affect a page that is open. Only hashes are stored.
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
"""Seconds that a session lasts after its last request. The browser forgets its cookie when it is closed."""
NOTED_EVERY = 600.0
"""Seconds after which the use of a session is stored again."""


def new_token() -> str:
    """Return 256 random bits, as text for an address."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """Return the hash of a token, which is stored in its place."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True)
class Session:
    """Stored part of an annotator's session."""

    id: str
    annotator: str
    cookie: bytes
    """Hash of the cookie's value."""
    page: bytes
    """Hash of the secret that the page keeps."""
    used: float
    """Time of the last request that was stored, in seconds since 1970."""


class Kept(Protocol):
    """Storage in which sessions outlive the server."""

    def sessions(self) -> Iterable[Session]:
        """Return all stored sessions."""

    def keep_sessions(self, sessions: Iterable[Session]) -> None:
        """Store these sessions, and no others."""


class Sessions:
    """Sessions of annotators.

    hashes: hash of each annotator's link, by name. cookie: beginning of the cookies' names; each session has its own
    cookie, so that none replaces another. kept: storage of the sessions; None: they are not stored.
    """

    def __init__(
        self, hashes: Mapping[str, bytes], cookie: str, kept: Kept | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.hashes, self.cookie, self._kept, self._clock = hashes, cookie, kept, clock
        self._sessions = {session.id: session for session in (kept.sessions() if kept is not None else ())}

    def annotator(self, token: str) -> str | None:
        """Return the annotator whose link has this token. It takes the same time for every token."""
        hash, whose = token_hash(token), None
        for name, stored in self.hashes.items():
            if hmac.compare_digest(hash, stored):
                whose = name
        return whose

    def begin(self, annotator: str, *, secure: bool) -> tuple[str, str]:
        """Return a new session: `Set-Cookie`, and the secret that the page keeps and sends as `X-Session`."""
        id, cookie, page = secrets.token_hex(8), new_token(), new_token()
        now = self._clock()
        self._sessions[id] = Session(id, annotator, token_hash(cookie), token_hash(page), now)
        self._store(now)
        line = f"{self.cookie}_{id}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        return f"{line}; Secure" if secure else line, f"{id}.{page}"

    def find(self, kept: str, cookies: Mapping[str, str]) -> str | None:
        """Return the annotator whose session has both the page's secret and the cookie."""
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
        """Delete the sessions that have ended, and store the others."""
        self._sessions = {id: each for id, each in self._sessions.items() if now - each.used <= SESSION_SECONDS}
        if self._kept is not None:
            self._kept.keep_sessions(self._sessions.values())


@dataclass(frozen=True)
class Address:
    """Addresses of the server."""

    host: str
    """Host that it is bound to."""
    port: int
    public: str | None = None
    """Public address behind a proxy, as in `https://annotate.example.org`."""

    @property
    def url(self) -> str:
        """Return the beginning of links, without a slash at the end."""
        if self.public is not None:
            return self.public
        host = "127.0.0.1" if self.host == "0.0.0.0" else "::1" if self.host == "::" else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def local(self) -> bool:
        """Return True if the server can only be reached from this machine."""
        return _is_loopback(self.host)

    def allows_host(self, header: str) -> bool:
        """Return True if the header is an address of this server. Host names must be known; numeric addresses cannot be
        rebound by DNS, so a server for the network allows all of them. The port may differ, for example behind a
        tunnel.
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
        """Return True if `origin` is the page's own origin, for a request to `host`."""
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
