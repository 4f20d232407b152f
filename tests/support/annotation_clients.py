"""A real annotation server in a process of its own, and clients that do not give up."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from annotation_stores import TEXTS
from patience import HUNG


class ServerProcess:
    """`fgrl annotate serve` on a port of its own, which stays the same over restarts."""

    def __init__(self, store: Path, samples: Path, *words: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.words = [str(samples), "--store", str(store), "--port", str(self.port), "--json", *words]
        self.log = store.with_suffix(".log")
        self.links: dict[str, str] = {}
        self.start()

    def start(self) -> dict[str, Any]:
        """What it prints once it is ready to be asked."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fgrl", "annotate", "serve", *self.words],
                stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ),
            )  # fmt: skip
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            line = self.process.stdout.readline()
            assert line, self.log.read_text()
            lines.append(line)
        printed: dict[str, Any] = json.loads("".join(lines))
        self.links |= printed["links"]
        return printed

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is answered."""
        self.process.kill()
        self.process.wait(timeout=HUNG)

    def stop(self) -> int:
        """Ctrl-C. Returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=HUNG)


class Client:
    """One annotator's browser: repeats what was not answered."""

    def __init__(self, port: int, link: str) -> None:
        self.port, self.interrupted = port, 0
        self.connection: http.client.HTTPConnection | None = None
        self.cookie = self.session = ""
        _status, _answer, headers = self._ask("GET", link[link.index("/enter/") :], None)
        self.cookie = headers["set-cookie"].split(";")[0]
        self.session = headers["location"].partition("#session=")[2]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, answer), asked again until there is one."""
        waiting = threading.Event()
        while True:
            try:
                status, answer, _headers = self._ask(method, path, body)
            except (OSError, http.client.HTTPException):
                self.interrupted += 1
                self.close()
                waiting.wait(0.05)  # the server is being started again
            else:
                return status, answer

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _ask(self, method: str, path: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HUNG)
        headers = {"Origin": f"http://127.0.0.1:{self.port}", "Cookie": self.cookie, "X-Session": self.session}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self.connection.getresponse()
        content = response.read()
        answer = json.loads(content) if response.getheader("content-type") == "application/json" else None
        return response.status, answer, {name.lower(): value for name, value in response.getheaders()}


def _passage(draw: random.Random) -> tuple[int, int, int]:
    place = draw.randrange(2)
    start = draw.randrange(len(TEXTS[place]) - 1)
    return place, start, draw.randrange(start + 1, len(TEXTS[place]))


@dataclass
class Work:
    """What annotators did, and saw acknowledged."""

    spans: int
    """How many each annotator marks."""
    acknowledged: list[tuple[str, str, str, int, dict[str, Any]]] = field(default_factory=list)
    """Annotator, item's number, span's id, version, body."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Active time that each annotator saw acknowledged."""
    asking: set[str] = field(default_factory=set)
    """Who waits for an answer."""
    problems: list[str] = field(default_factory=list)
    interrupted: int = 0
    grew: threading.Condition = field(default_factory=threading.Condition)

    def annotate(self, name: str, client: Client, seed: int) -> None:
        """Mark spans, change some of them, send some requests twice."""
        draw = random.Random(seed)
        try:
            item: str | None = None
            marked: set[tuple[str, int, int, int]] = set()
            for number in range(self.spans):
                if item is None or draw.random() < 0.1:
                    _status, answer = client.ask("POST", "/api/items/next", {"current": item})
                    item = answer["item"]["id"] if answer["item"] is not None else item
                assert item is not None
                if draw.random() < 0.2:
                    self._spend(name, client, item, f"t{number}", draw.randrange(1, 40) / 4, draw.randrange(1, 3))
                versions = 2 if draw.random() < 0.2 else 1
                for base in range(versions):
                    place, start, end = _passage(draw)
                    while (item, place, start, end) in marked:  # the same mark twice is refused
                        place, start, end = _passage(draw)
                    marked.add((item, place, start, end))
                    body = {
                        "place": place, "start": start, "end": end, "quote": TEXTS[place][start:end], "label": -1,
                        "reasons": ["factually_wrong"], "note": f"{name} {number} {base}", "deleted": draw.random() < 0.1,
                    }  # fmt: skip
                    for _ in range(2 if draw.random() < 0.1 else 1):
                        self._save(name, client, item, f"{name}-{number}", base, body)
        except Exception as error:
            self.problems.append(f"{name}: {error!r}")
        finally:
            self.interrupted += client.interrupted
            client.close()
            with self.grew:
                self.grew.notify_all()

    def _spend(self, name: str, client: Client, item: str, id: str, seconds: float, times: int) -> None:
        for _ in range(times):
            status, answer = client.ask("POST", f"/api/items/{item}/time", {"id": id, "seconds": seconds})
            if status != 200:
                raise AssertionError(f"{id}: {status} {answer}")
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _save(self, name: str, client: Client, item: str, id: str, base: int, body: dict[str, Any]) -> None:
        self.asking.add(name)
        status, answer = client.ask("PUT", f"/api/items/{item}/spans/{id}", {"id": id, "base": base, **body})
        self.asking.discard(name)
        if (status, answer) != (200, {"version": base + 1}):
            raise AssertionError(f"{id} on {base}: {status} {answer}")
        with self.grew:
            self.acknowledged.append((name, item, id, base + 1, body))
            self.grew.notify_all()

    def wait_for(self, acknowledged: int, threads: Sequence[threading.Thread]) -> int:
        """Until so many were acknowledged and somebody waits for an answer. Returns how many wait; 0: everybody has finished."""
        waiting = 0

        def ready() -> bool:
            nonlocal waiting
            waiting = len(self.asking) if len(self.acknowledged) >= acknowledged else 0
            return waiting > 0 or not any(thread.is_alive() for thread in threads)

        with self.grew:
            assert self.grew.wait_for(ready, timeout=HUNG), "nobody is answered any more"
        return waiting
