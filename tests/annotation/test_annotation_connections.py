"""Bodies that never arrive are refused; the store's files are its owner's."""

from __future__ import annotations

import http.client
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from annotation_browser import Site, served
from annotation_stores import new_store
from patience import HUNG

from fgrl.pages.annotation import serving

guard = pytest.importorskip("fgrl.pages.annotation.guard", reason="needs Starlette: pip install 'fgrl[annotate]'")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path) as site:
        yield site


def connected(site: Site) -> socket.socket:
    parts = urlsplit(site.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=HUNG)


def test_a_body_that_never_arrives_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    asking = http.client.HTTPConnection(urlsplit(site.url).netloc, timeout=HUNG)
    asking.request("GET", urlsplit(site.links["ann"]).path)
    entered = asking.getresponse()
    entered.read()
    cookie, kept = entered.headers["set-cookie"].partition(";")[0], entered.headers["location"].partition("=")[2]
    head = f"POST /api/items/next HTTP/1.1\r\nHost: {urlsplit(site.url).netloc}\r\nOrigin: {site.url}\r\nCookie: {cookie}\r\n"
    with connected(site) as waiting:
        waiting.sendall(f"{head}X-Session: {kept}\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert waiting.recv(12) == b"HTTP/1.1 408"


def test_a_length_that_is_no_number_is_refused(site: Site) -> None:
    with connected(site) as waiting:
        waiting.sendall(f"POST / HTTP/1.1\r\nHost: {urlsplit(site.url).netloc}\r\nContent-Length: x\r\n\r\n".encode())
        assert waiting.recv(12) == b"HTTP/1.1 400"


def test_only_its_owner_reads_a_store(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with new_store(tmp_path / "new" / "folder") as store:
            store.offer("ann")
            files = list(store.path.parent.iterdir())
            assert {"page.sqlite", "page.sqlite-wal"} <= {file.name for file in files}
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
            store.path.chmod(0o644)
        with serving.open_store(store.path, None, None, []).store:
            assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    finally:
        os.umask(mask)
