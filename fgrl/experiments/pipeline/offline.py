"""Where the Hugging Face hub is not asked: a plan asks no network, and a run does not try again what it cannot reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from huggingface_hub import constants, get_session
from huggingface_hub.errors import OfflineModeIsEnabled

CONNECT_SECONDS = 10.0


@contextmanager
def from_cache_only() -> Iterator[None]:
    """Inside, libraries that ask the Hugging Face hub find it switched off, as with `HF_HUB_OFFLINE=1`.

    All of them ask through huggingface_hub, which looks at this constant at every request.
    """
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def reached_or_off(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, the hub is switched off after the first request that finds no connection to it within `CONNECT_SECONDS`;
    `say` is told. Once it has answered anything, huggingface_hub tries again as it always does.
    """
    before, client = constants.HF_HUB_OFFLINE, get_session()
    ask = client.send

    def send(request: httpx2.Request, **options: Any) -> httpx2.Response:
        request.extensions["timeout"]["connect"] = CONNECT_SECONDS
        try:
            response = ask(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if not constants.HF_HUB_OFFLINE:
                constants.HF_HUB_OFFLINE = True
                say(
                    f"{constants.ENDPOINT} cannot be reached ({error}): models and data come from the local cache from "
                    "here on"
                )
            raise OfflineModeIsEnabled(f"{constants.ENDPOINT} cannot be reached ({error})") from error
        client.send = ask  # type: ignore[method-assign]
        return response

    client.send = send  # type: ignore[method-assign]
    try:
        yield
    finally:
        client.send, constants.HF_HUB_OFFLINE = ask, before  # type: ignore[method-assign]
