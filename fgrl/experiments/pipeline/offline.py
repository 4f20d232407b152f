"""Control over requests to the Hugging Face hub: a plan never uses the network, and a run does not retry an unreachable
hub.
"""

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
    """Switch the Hugging Face hub off inside the context, as with `HF_HUB_OFFLINE=1`.

    All libraries ask through huggingface_hub, which reads this constant at every request.
    """
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def reached_or_off(say: Callable[[str], None]) -> Iterator[None]:
    """Switch the hub off inside the context after the first request that cannot connect to it within `CONNECT_SECONDS`,
    and tell `say`. Once the hub has answered a request, huggingface_hub retries as usual.
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
