"""A running stage's folder and requests, for tests of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fgrl.components.clients.openai import OpenAI
from fgrl.experiments.pipeline.run import Run
from fgrl.types import Message, Request


def a_run(folder: Path, stage: str = "stage", **more: Any) -> Run:
    (folder / stage).mkdir(parents=True, exist_ok=True)
    return Run(stage, folder / stage, cache=folder / "cache", **more)


def requests(count: int, prefix: str = "q") -> list[Request]:
    return [request(f"{prefix}{number}") for number in range(count)]


def request(text: str, **more: Any) -> Request:
    return Request(messages=[Message(role="user", content=text)], **more)


def a_client(url: str, run: Run, **settings: Any) -> OpenAI:
    client = OpenAI(**{"model": "m", "base_url": url, "api_key_env": None, **settings})
    client.setup(run)
    return client
