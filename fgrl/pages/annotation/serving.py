"""Start of an annotation server from samples: the store is created or resumed, links are issued, a port is bound."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from fgrl.base import lazy
from fgrl.base.errors import DataError, Requires, UsageError
from fgrl.base.visible import quantity
from fgrl.feedback.page_settings import load_settings
from fgrl.pages.annotation.access import Address, Sessions, new_token, token_hash
from fgrl.pages.annotation.leases import LEASES_EACH
from fgrl.pages.annotation.store import Store, checked_name, is_absent, make_private
from fgrl.types import Sample, Samples, read_jsonl

server = lazy.load("fgrl.pages.annotation.server")
uvicorn = lazy.load("uvicorn")

MANAGER = "manager"
"""Name of the owner of the manager page's session."""
DEFAULT_SETTINGS = "retrieval"
"""Settings of the page that come with fgrl, used when a new store names none."""


@dataclass
class Opened:
    """A store that is ready to be served."""

    store: Store
    notes: list[str] = field(default_factory=list)
    """Notes for the user at the terminal."""


def read_samples(source: Path) -> Iterable[Sample]:
    """Yield samples of a JSONL file or of the folder of a stage's product. Raises `DataError`."""
    file = source / "samples.jsonl" if source.is_dir() else source
    if not file.is_file():
        raise DataError(
            f"{source}: no samples here: name a JSONL file with one sample per line, or the folder of a stage that makes samples"
        )
    try:
        yield from Samples(source).read() if source.is_dir() else read_jsonl(file, Sample)
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 ({error.reason} at byte {error.start})") from None


def open_store(
    path: Path,
    samples: Path | None,
    settings: str | None,
    annotators: Sequence[str],
    *,
    overlap: int | None = None,
    each: int | None = None,
    seed: int | None = None,
    leases: int = LEASES_EACH,
) -> Opened:
    """Create the store, or resume the one that exists. A setting that is None keeps the store's value (in a new store:
    overlap 0, each 1, seed 0).

    leases: number of items that one annotator holds at a time. For an existing store, the given samples are compared
    with its samples, new annotators are added, and given settings of the page replace the earlier ones. Raises
    `DataError` for other samples, and `UsageError` for a change of a value that was fixed when the store was created.
    """
    names = [checked_name(name) for name in annotators]
    if is_absent(path):
        if samples is None:
            raise UsageError(f"{path}: there is no such store yet: name the samples to annotate as well")
        if not names:
            raise UsageError("a new store needs annotators: --annotators ann,ben")
        page = load_settings(settings or DEFAULT_SETTINGS)
        store = Store.create(
            path, read_samples(samples), page, names, overlap or 0, each=1 if each is None else each, seed=seed or 0
        )
        store.leases_each = leases
        return Opened(store, [f"{path}: created with {quantity(len(store.items), 'item')}"])
    make_private(path)
    store = Store(path)
    store.leases_each = leases
    with ExitStack() as after_errors:
        after_errors.callback(store.close)
        for name, wanted in {"overlap": overlap, "each": each, "seed": seed}.items():
            if wanted is not None and wanted != getattr(store, name):
                raise UsageError(
                    f"{path} was created with --{name} {getattr(store, name)}, which cannot change: leave --{name} out, or "
                    "choose another file with --store"
                )
        if samples is not None:
            store.check_samples(read_samples(samples))
        notes = [f"{path}: resumed with {quantity(len(store.items), 'item')}"]
        if settings is not None and store.set_settings(load_settings(settings)):
            notes.append("the page's settings differ from the earlier ones and are used from now on")
        if added := store.add_annotators(names):
            notes.append(f"new annotators: {', '.join(added)}")
        if not store.annotators:
            raise UsageError(f"{path} has no annotators yet: --annotators ann,ben")
        after_errors.pop_all()
    return Opened(store, notes)


def issue_links(store: Store, address: Address, *, renew: Sequence[str] = ()) -> dict[str, str]:
    """Return links of the annotators who have none yet, by name, and new links of the annotators in `renew` ("all":
    everybody), whose earlier links and sessions end.

    Only hashes are stored: a link cannot be shown again. Raises `UsageError` for a name that the store does not have.
    """
    wanted = store.annotators if "all" in renew else list(renew)
    if strangers := [name for name in wanted if name not in store.annotators]:
        raise UsageError(f"--new-links {','.join(strangers)}: the store's annotators are {', '.join(store.annotators)}")
    known = store.token_hashes()
    tokens = {name: new_token() for name in store.annotators if name in wanted or name not in known}
    store.set_token_hashes({name: token_hash(token) for name, token in tokens.items()})
    return {name: f"{address.url}/enter/{token}" for name, token in tokens.items()}


def checked_public(url: str | None) -> str | None:
    """Return the origin of an address behind a proxy, without a slash at the end. Raises `UsageError`."""
    if url is None:
        return None
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise UsageError(f"--public-url {url}: wants an address without a path, as in https://annotate.example.org")
    return f"{parts.scheme}://{parts.netloc}".lower()


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket that queues connections until `run` answers them. Raises `UsageError` when the port is in
    use or the host is not an address of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        reason, code = getattr(error, "strerror", None) or error, getattr(error, "errno", None)
        if code == errno.EADDRINUSE:
            reason = "the port is in use: choose another one with --port, or end the other program"
        if code == errno.EACCES:
            reason = "this user may not use the port: choose one above 1023 with --port"
        raise UsageError(f"--host {host} --port {port}: {reason}") from None


def application(store: Store, address: Address, manager: str | None = None) -> Any:
    """Return the server of this store as an ASGI application. Raises `Unavailable` without the extra `annotate`.

    manager: token of the link to the manager's page. It is not stored, and its sessions end with the server.
    """
    sessions = Sessions(store.token_hashes(), f"fgrl_annotate_{store.id}", store)
    need_packages()
    managers = None if manager is None else Sessions({MANAGER: token_hash(manager)}, f"fgrl_manage_{store.id}")
    return server.application(store, sessions, address, managers=managers)


def need_packages() -> None:
    """Raise `Unavailable` when the extra `annotate` is not installed."""
    Requires("starlette", "fgrl annotate serve needs Starlette", extra="annotate").check()
    Requires("uvicorn", "fgrl annotate serve needs uvicorn", extra="annotate").check()


def configuration(app: Any) -> Any:
    """Return the configuration with which uvicorn serves the application."""
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, lifespan="off", ws="none",
        http="h11", loop="asyncio", timeout_keep_alive=20, timeout_graceful_shutdown=10,
    )  # fmt: skip


def run(app: Any, bound: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM; requests in flight are answered first."""
    config = configuration(app)
    earlier = signal.signal(signal.SIGTERM, _interrupted)
    try:
        uvicorn.Server(config).run(sockets=[bound])
    except KeyboardInterrupt:  # raised again once everything was answered
        return
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
