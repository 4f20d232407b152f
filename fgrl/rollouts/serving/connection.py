"""HTTP requests to one server of vLLM. Every call has a time limit, and every failure is one of two errors."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fgrl.base import lazy
from fgrl.base.errors import Unavailable
from fgrl.kinds import ServerGone, ServerRefused

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = lazy.load("httpx2")

KEY = "FGRL_VLLM_KEY"
"""Environment variable with the key of servers on other machines."""
UNIX = "unix:"
"""Prefix of the address of a server that listens at a Unix socket: the socket's path follows."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONNECT = 10.0
"""Maximum seconds to wait for a connection."""


class Connection:
    """The address of a server, and calls to it."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        key = os.environ.get(KEY)
        self.headers = {"Authorization": f"Bearer {key}"} if key and not is_local(address) else {}
        self._socket = self.address.removeprefix(UNIX) if self.address.startswith(UNIX) else None
        secure = self.address.startswith("https:")  # certificates take longer to read than a call
        self._way: dict[str, Any] = {"uds": self._socket, "verify": secure, "trust_env": False}
        self._base = self.address if self._socket is None else "http://vllm"

    def call(self, path: str, body: Any = None, *, limit: float, method: str = "POST") -> Any:
        """Return the server's answer: JSON, or text if it is not JSON. limit: seconds.

        Raises `ServerGone` and `ServerRefused`.
        """
        try:
            with self._client(limit) as client:
                response = client.request(method, path, json=body)
        except httpx2.HTTPError as error:
            raise ServerGone(_in_words(path, error, limit)) from None
        return _read(path, response.status_code, response.text)

    def get(self, path: str, *, limit: float) -> Any:
        """Return the answer of `call` with GET."""
        return self.call(path, limit=limit, method="GET")

    def rpc(self, method: str, *args: str, limit: float) -> list[Any]:
        """Return the results of a method from each of the server's workers."""
        body = {"method": method, "args": list(args), "timeout": limit}
        answer = self.call("/collective_rpc", body, limit=limit)
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or not results:
            raise ServerRefused(f"/collective_rpc {method}: no results: {str(answer)[:200]}")
        return results

    def _client(self, limit: float) -> httpx2.Client:
        way = httpx2.HTTPTransport(**self._way)
        return httpx2.Client(base_url=self._base, headers=self.headers, timeout=_timeout(limit), transport=way)

    def open(self, limit: float, concurrency: int) -> httpx2.AsyncClient:
        """Return a client for many calls at the same time."""
        limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        way = httpx2.AsyncHTTPTransport(**self._way, limits=limits)
        return httpx2.AsyncClient(base_url=self._base, headers=self.headers, timeout=_timeout(limit), transport=way)


async def post(client: httpx2.AsyncClient, path: str, body: Any, limit: float) -> Any:
    """Return the answer, as `Connection.call`, concurrently with other calls."""
    try:
        response = await client.post(path, json=body)
    except httpx2.HTTPError as error:
        raise ServerGone(_in_words(path, error, limit)) from None
    return _read(path, response.status_code, response.text)


async def events(client: httpx2.AsyncClient, path: str, body: Any, limit: float) -> AsyncIterator[Any]:
    """Yield the JSON of each event of a stream, as it arrives. A caller that stops reading ends the request."""
    try:
        async with client.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode("utf-8", "replace")
                _read(path, response.status_code, text)
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    return
                if line.startswith("data: "):
                    yield _json(path, line.removeprefix("data: "))
    except httpx2.HTTPError as error:
        raise ServerGone(_in_words(path, error, limit)) from None
    raise ServerGone(f"{path}: the stream ended before its end")


def is_local(address: str) -> bool:
    """Return True for an address of this machine."""
    return address.startswith(UNIX) or (urlsplit(address).hostname or "") in LOOPBACK


def check_address(address: str) -> None:
    """Raise `Unavailable` for a server on another machine that anybody can control. In vLLM itself, the routes that
    replace weights and run methods of the workers do not ask for a key: a proxy before the server must.
    """
    if is_local(address):
        return
    if not os.environ.get(KEY):
        raise Unavailable(
            f"the server {address} is on another machine: set {KEY} to its key, or name one of this machine"
        )
    bare = Connection(address)
    bare.headers = {}
    try:
        bare.get("/weight_info", limit=CONNECT)
    except ServerRefused:
        return
    except ServerGone as error:
        raise Unavailable(f"the server {address} does not answer: {error}") from None
    raise Unavailable(
        f"the server {address} answers /weight_info without a key, so anybody who reaches it can replace its weights: put a proxy that "
        "asks for the key before all of its routes"
    )


def _timeout(limit: float) -> httpx2.Timeout:
    return httpx2.Timeout(limit, connect=min(limit, CONNECT), pool=None)


def _in_words(path: str, error: Exception, limit: float) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return f"{path}: no answer within {limit:g} s"
    return f"{path}: {str(error) or type(error).__name__}"


def _read(path: str, status: int, text: str) -> Any:
    if status != 200:
        raise ServerRefused(f"{path}: status {status}: {text[:500]}")
    return _json(path, text) if text[:1] in ("{", "[") else text


def _json(path: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ServerRefused(f"{path}: what it answers is not JSON: {text[:200]}") from None
