"""Who may ask the annotation server for what: token links, cookies, hosts, origins, and the size of requests.

1. A request names the server by an address that it was started with. A name that a foreign DNS points to this machine is
   refused (DNS rebinding).
2. A request that writes comes from the page itself: its `Origin` is the server's own, or, where a browser sends none,
   `Sec-Fetch-Site` is `same-origin`. Other sites are refused, other ports of this machine too.
3. Whatever is not the page's own files needs a session. A link starts one and is sent once. A session has two random secrets: one in a
   cookie, which no script can read, and one that the page keeps and sends as `X-Session`. A browser sends a cookie to every port of
   the host, so the cookie alone opens nothing; what the page keeps is read by no page of another port, and a link that is opened
   later in the same browser changes nothing for a page that is open. Only hashes are stored.
4. A body is read once all of this holds, up to a limit and within a time.
5. Every response forbids scripts, styles and frames of other origins, and is never cached.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from fgrl.errors import FgrlError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 8 * 2**20
"""Bytes of a request: a quote may be a whole response."""
SAFE = ("GET", "HEAD")
PUBLIC = ("/static/", "/enter/")
"""Beginnings of addresses that need no session, next to `/`: files of the page, and the links themselves."""
SESSION_SECONDS = 12 * 3600.0
"""How long a session lasts after its last request. The browser forgets its cookie when it is closed."""
SESSIONS_EACH = 50
"""Sessions of one annotator that are kept; the ones used longest ago end first."""
NOTED_EVERY = 600.0
"""Seconds after which the use of a session is stored again."""
BODY_SECONDS = 60.0
"""How long a request's body may take to arrive."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every response."""


def new_token() -> str:
    """256 random bits, as text for an address."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """What is stored of a token."""
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
        """The annotator whose link has this token. Takes the same time whatever the token is."""
        hash, whose = token_hash(token), None
        for name, stored in self.hashes.items():
            if hmac.compare_digest(hash, stored):
                whose = name
        return whose

    def begin(self, annotator: str, *, secure: bool) -> tuple[str, str]:
        """A new session: `Set-Cookie`, and what the page keeps and sends as `X-Session`."""
        id, cookie, page = secrets.token_hex(8), new_token(), new_token()
        now = self._clock()
        mine = sorted(
            (each for each in self._sessions.values() if each.annotator == annotator), key=lambda each: each.used
        )
        for old in mine[: max(len(mine) - SESSIONS_EACH + 1, 0)]:
            del self._sessions[old.id]
        self._sessions[id] = Session(id, annotator, token_hash(cookie), token_hash(page), now)
        self._store(now)
        line = f"{self.cookie}_{id}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        return f"{line}; Secure" if secure else line, f"{id}.{page}"

    def of_request(self, headers: Mapping[bytes, list[bytes]]) -> str | None:
        """The annotator whose session a request has: both its cookie and what its page keeps."""
        id, _, page = (_only(headers, b"x-session") or "").partition(".")
        session, now = self._sessions.get(id), self._clock()
        if session is None or session.annotator not in self.hashes or now - session.used > SESSION_SECONDS:
            return None
        cookies = [
            part.strip().partition("=")
            for line in headers.get(b"cookie", [])
            for part in line.decode("latin-1").split(";")
        ]
        given = next((value for name, _, value in cookies if name == f"{self.cookie}_{id}"), "")
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
        """Is it an address of this server? Names are known ones; numbers cannot be rebound by DNS, so that a server for the
        network allows any of them. The port may be another one: a tunnel's."""
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


class Guard:
    """The outermost layer of the server: rules 1 to 5 above. What passes has its annotator in `scope["annotator"]`."""

    def __init__(self, app: App, sessions: Sessions, address: Address) -> None:
        self.app, self.sessions, self.address = app, sessions, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the annotation server speaks HTTP only, not {scope['type']}")
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [
                    (name, value) for name, value in message["headers"] if name.decode("latin-1").lower() not in HEADERS
                ]
                message["headers"] = own + [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(guarded, *refusal)
            return
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _whole_body(receive, _largest(scope))
        except _ClientLeft:
            return
        except TimeoutError:
            await _refuse(guarded, 408, "the request took too long to arrive")
            return
        if body is None:
            await _refuse(guarded, 413, _too_large(scope))
            return
        await self.app(scope, _replay(body, receive), guarded)

    def _refusal(self, scope: Scope, headers: Mapping[bytes, list[bytes]]) -> tuple[int, str] | None:
        """(status, reason) of a request that goes no further."""
        # 1.
        host = _only(headers, b"host")
        if host is None or not self.address.allows_host(host):
            return 403, "this host name is not one of the annotation server's: use the link that it printed"
        # 2.
        path, method = scope["path"], scope["method"]
        site, origin = _only(headers, b"sec-fetch-site"), _only(headers, b"origin")
        if method not in SAFE:
            own = site == "same-origin" if b"origin" not in headers else (
                origin is not None and self.address.allows_origin(origin, host)
            )  # fmt: skip
            if not own:
                return 403, "a page of another origin may not write here"
        public = path == "/" or path.startswith(PUBLIC)
        if not public and site not in (None, "same-origin", "none"):
            return 403, "a page of another origin may not read here"
        # 3.
        scope["annotator"] = None if public else self.sessions.of_request(headers)
        if not public and scope["annotator"] is None:
            return 401, "no session: open the link that you were given"
        # 4.
        lengths = headers.get(b"content-length", [b"0"])
        if len(lengths) > 1 or not lengths[0].isdigit():
            return 400, "the length of the request is no number"
        if int(lengths[0]) > _largest(scope):
            return 413, _too_large(scope)
        return None


class _ClientLeft(Exception):
    """The connection ended before the request was complete."""


def _largest(scope: Scope) -> int:
    """Bytes that are read of a request's body: none without a session."""
    return 0 if scope["annotator"] is None else LARGEST_BODY


def _too_large(scope: Scope) -> str:
    limit = _largest(scope)
    return f"the request is larger than {limit // 2**20} MiB" if limit else "this request has no body"


def _only(headers: Mapping[bytes, list[bytes]], name: bytes) -> str | None:
    """The value of a header that comes once."""
    values = headers.get(name, [])
    return values[0].decode("latin-1") if len(values) == 1 else None


async def _whole_body(receive: Receive, limit: int) -> bytes | None:
    """The body of a request; None when it is longer than the limit."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientLeft
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
