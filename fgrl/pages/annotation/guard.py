"""Outermost layers of the annotation server.

The rules, which the classes and functions below refer to by number:

1. A request names the server by an address that it was started with. A name that a foreign DNS points to this machine
   is refused (DNS rebinding).
2. A request that writes comes from the page itself: its `Origin` is the server's own, or, if a browser sends none,
   `Sec-Fetch-Site` is `same-origin`. Other sites are refused, and other ports of this machine too.
3. Every address below `/api/` needs a session (`fgrl.pages.annotation.access`), which Starlette's
   AuthenticationMiddleware checks.
4. A body is read only after these checks, up to a limit and within a time.
5. Every response forbids scripts, styles and frames of other origins, and is never cached.
"""

from __future__ import annotations

import asyncio

from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fgrl.pages.annotation.access import Address, Sessions

LARGEST_BODY = 8 * 2**20
"""Maximum bytes of a request body: a quote may be a whole response."""
BODY_SECONDS = 60.0
"""Seconds that a request's body may take to arrive."""
SAFE = ("GET", "HEAD")
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
"""Headers of every response."""


class Guard:
    """ASGI layer that applies rules 1, 2 and 5."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self.app, self.address = app, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        reason = self._refusal(Request(scope))
        app = self.app if reason is None else JSONResponse({"error": reason}, 403)
        await app(scope, receive, guarded)

    def _refusal(self, request: Request) -> str | None:
        """Return the reason why a request is refused, or None if it is allowed."""
        # 1.
        host = request.headers.get("host", "")
        if not self.address.allows_host(host):
            return "this host name is not one of the annotation server's: use the link that it printed"
        # 2.
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if request.method not in SAFE:
            own = site == "same-origin" if origin is None else self.address.allows_origin(origin, host)
            if not own:
                return "a page of another origin may not write here"
        if request.scope["path"].startswith("/api/") and site not in (None, "same-origin", "none"):
            return "a page of another origin may not read here"
        return None


class Backend(AuthenticationBackend):
    """Authentication by session (rule 3)."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        """Return the annotator of the session. Raises AuthenticationError."""
        annotator = self.sessions.find(conn.headers.get("x-session", ""), conn.cookies)
        if annotator is None:
            raise AuthenticationError("no session: open the link that you were given")
        return AuthCredentials(), SimpleUser(annotator)


def no_session(_connection: HTTPConnection, error: AuthenticationError) -> JSONResponse:
    """Return the answer to a request without a session."""
    return JSONResponse({"error": str(error)}, 401)


async def read_body(request: Request) -> bytes:
    """Return the body of a request, within the limits of rule 4. Raises HTTPException."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_BODY:
                    raise HTTPException(413, f"the request is larger than {LARGEST_BODY // 2**20} MiB")
    except TimeoutError:
        raise HTTPException(408, "the request took too long to arrive") from None
    return bytes(body)
