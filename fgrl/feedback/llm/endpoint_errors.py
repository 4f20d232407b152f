"""Meaning of the errors of an endpoint, and their reports: one request fails, or all requests would fail
(`Unavailable`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx2
import openai

from fgrl.base.errors import Unavailable
from fgrl.base.sanitizing import Scrubber

NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)

LONGEST_PAUSE = 120.0
"""Longest pause in seconds that the openai library waits if an endpoint asks for one; after a longer pause it does not
try again.
"""


@dataclass(frozen=True)
class EndpointErrors:
    """Explanations of the errors of one endpoint."""

    address: str
    model: str
    key_variable: str | None
    """Name of the environment variable that holds the key; None: no key is sent."""
    scrub: Scrubber

    def status(self, error: openai.APIStatusError, *, reached: bool) -> str:
        """Return the reason why a request failed with an HTTP status, after all retries. `reached`: the endpoint has
        answered before.

        Raises `Unavailable` if every other request would fail as well: wrong key, unknown model, used-up quota, long
        pause.
        """
        status, reply = error.status_code, self.message(error)
        if status == 401 or (status == 403 and not reached):
            refused = (
                f"refuses the key in {self.key_variable}" if self.key_variable else "takes no request without a key"
            )
            raise Unavailable(
                f"{self.address} {refused} (HTTP {status}: {reply}): set `api_key_env` to the variable with the right key"
            ) from None
        if 300 <= status < 400 and not reached:
            raise Unavailable(
                f"{self.address} sends requests on to {reply} (HTTP {status}), and fgrl does not follow: the key and the prompts would go "
                "there. If that address is right, write it as `base_url`"
            ) from None
        if status == 404:
            raise Unavailable(
                f"{self.address} has no model {self.model} (HTTP 404: {reply}): check `model` and `base_url`"
            ) from None
        if status == 402 or (status == 429 and error.code == "insufficient_quota"):
            raise Unavailable(
                f"{self.address}: the account's quota is used up (HTTP {status}: {reply}); answers so far are kept"
            ) from None
        if status == 429 and (pause := requested_pause(error.response.headers)) > LONGEST_PAUSE:
            raise Unavailable(
                f"{self.address} asks for a pause of {pause:,.0f} s (HTTP 429: {reply}): run the same command after it; answers so "
                "far are kept, and only what is missing is asked"
            ) from None
        return f"HTTP {status}: {reply}"

    def connection(self, error: openai.APIConnectionError, *, reached: bool) -> str:
        """Return the reason why a request got no answer, after all retries. Raises `Unavailable` if the server cannot
        be reached.
        """
        cause = error.__cause__
        reason = self.scrub.line(f"{type(cause).__name__}: {str(cause) or error}")
        if not isinstance(cause, NEVER_SENT):
            return f"no answer: {reason}"
        advice = "is the server running, is `base_url` right?"
        if reached:
            advice = "it did before; answers so far are kept: start it and run the same command, and only what is missing is asked"
        raise Unavailable(f"no answer from {self.address} ({reason}): {advice}") from None

    def message(self, error: openai.APIStatusError) -> str:
        """Return the endpoint's own message, or the address that it redirects to, on one line and without secrets."""
        if error.response.next_request is not None:
            address = error.response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
            return self.scrub.line(str(address))
        said = error.body.get("message") if isinstance(error.body, dict) else None
        return self.scrub.line(said if isinstance(said, str) and said else error.response.text)


def requested_pause(headers: Mapping[str, str]) -> float:
    """Return the seconds that an endpoint asks to wait; 0 if it gives no number."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return float(headers[name]) / per_second
        except (KeyError, ValueError):
            continue
    return 0.0
