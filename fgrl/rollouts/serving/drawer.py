"""A model whose responses are drawn by servers of vLLM.

Every response was drawn with weights that the servers were shown to have; otherwise it is requested again. A server
that ends or hangs is replaced and gets the weights, and only the missing responses are requested.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fgrl.base import stops
from fgrl.base.errors import EngineFailed, Stopped, UsageError
from fgrl.feedback.llm import background, together
from fgrl.kinds import Drawer, Drawing, DrawRequest, Parcel, Transfer
from fgrl.kinds.transfer import failures
from fgrl.rollouts.serving import completions, connection
from fgrl.rollouts.serving.completions import BadAnswer
from fgrl.rollouts.serving.connection import ServerGone, ServerRefused
from fgrl.rollouts.serving.drawing import FromServers
from fgrl.rollouts.serving.early import complete
from fgrl.rollouts.serving.servers import Servers, Slot
from fgrl.types import DrawnResponse

T = TypeVar("T")

RENEWALS = 3
"""Maximum number of replacements of servers in a row, without an answer in between, before the run stops."""
POLL = 0.1
"""Seconds between two checks whether the run is to stop."""


@dataclass(frozen=True)
class Limits:
    """Limits of time and number."""

    draw: float
    """Maximum duration of one response in seconds."""
    transfer: float
    """Maximum duration of each step of a transfer in seconds."""
    concurrency: int
    """Maximum number of requests that one server has at the same time."""
    checksum_every: int
    """Number of transfers after which every tensor is compared; 0: never."""
    keep: bool
    """True if responses are drawn from a version while the model already changes."""


class Served(Drawer):
    """Drawer that uses servers. The requests of a process are distributed over all of them."""

    def __init__(
        self, model: Any, servers: Callable[[], Servers], transfer: Transfer, dtype: str, limits: Limits, end: Callable[[], None]
    ) -> None:  # fmt: skip
        """servers: returns the servers to draw from, which are started at the first use. end: gives them back."""
        self.model, self.transfer, self.dtype, self.limits = model, transfer, dtype, limits
        self._servers_of, self._end = servers, end
        self._servers: Servers | None = None
        self._parcel: Parcel | None = None
        self._id = secrets.token_hex(4)
        self._sent = 0
        self._closed = False
        vocabulary = model.transformer.get_output_embeddings().weight.shape[0]
        self._reader = completions.Reader(frozenset(model.eos_ids), vocabulary)

    # -- weights -------------------------------------------------------------------------------------------------------

    def take(self, weights: Any, version: int) -> None:
        """Bring the weights to all servers, unless this version is there already. With several processes all of them
        call it; the call of rank 0 brings them.
        """
        if weights is not self.model:
            raise ValueError("this drawer draws from the model that it was opened with: open another one")
        if self._parcel is not None and version == self.version:
            return
        servers = self._lent()
        with servers.reserved():
            self._id = together.lead(lambda _share: self._ready(servers), list)
            servers.started = True
            self._replace_parcel(version, servers)  # in all processes: each may have a part of the weights
            together.lead(lambda _share: self._bring(servers), list)

    def _ready(self, servers: Servers) -> str:
        if not servers.started:
            servers.start()
        return self._id

    def _replace_parcel(self, version: int, servers: Servers) -> None:
        """Pack the weights of a version, in place of the previous version."""
        before, self.version = self._parcel, version
        self._sent += 1
        label = f"fgrl-{self._id}-{version}"
        self._parcel = self.transfer.pack(self.model, label, self.dtype, servers.folder, keep=self.limits.keep)
        servers.held[self._parcel.name, self._parcel.version] += 1
        if before is not None:
            self._discard(before, servers)

    def _discard(self, parcel: Parcel, servers: Servers) -> None:
        held = servers.held
        held[parcel.name, parcel.version] -= 1
        if held[parcel.name, parcel.version] or servers.rank:
            return  # another drawer has the same weights
        slots = servers.slots() if servers.started else []
        for slot in slots:
            if slot.version == parcel.version:
                servers.note(slot, "")  # whoever has the same weights later brings them again
        with contextlib.suppress(ServerGone, ServerRefused):  # a server that is gone keeps nothing
            parcel.discard([slot.connection for slot in slots], self.limits.transfer)

    def _bring(self, servers: Servers) -> None:
        """Bring the weights to the servers that do not have them, and replace those that end meanwhile."""
        rounds = 0
        with servers.changing():
            while missing := [slot for slot in servers.slots() if slot.version != self._label]:
                stops.point()
                failed = self._bring_to(missing)
                rounds += bool(failed)
                for place, slot in enumerate(missing):
                    why = failed.get(place)
                    if why and rounds > RENEWALS:
                        raise EngineFailed(
                            f"the weights do not reach server {slot.number}: {why}\n{servers.last_words(slot)}"
                        )
                    if why:
                        servers.renew(slot, why)
                    elif why is None:
                        servers.note(slot, self._label)

    @property
    def _label(self) -> str:
        assert self._parcel is not None
        return self._parcel.version

    def _bring_to(self, slots: Sequence[Slot]) -> dict[int, str]:
        """Bring the weights to servers, and check that they have them. Return the errors as `Parcel.deliver_to_all`
        does.
        """
        assert self._parcel is not None
        failed = self._parcel.deliver_to_all([slot.connection for slot in slots], self.limits.transfer)
        reached = [place for place in range(len(slots)) if place not in failed]
        lost = failures([slots[place] for place in reached], self._check)
        return failed | {reached[place]: why for place, why in lost.items()}

    def _check(self, slot: Slot) -> None:
        """Check that a server has the weights of the version that was sent to it."""
        assert self._parcel is not None
        limit, every = self.limits.transfer, self.limits.checksum_every
        if (found := self._parcel.arrived(slot.connection, limit)) != self._label:
            raise Stopped(
                f"server {slot.number} reports the weights {found or 'of no version'} after {self._label} was sent to it: the transfer has not "
                "arrived"
            )
        if every and (self._sent - 1) % every == 0 and (wrong := self._parcel.differing(slot.connection, limit)):
            raise Stopped(
                f"server {slot.number} has other weights than version {self.version} that was sent to it: {len(wrong)} tensors differ, "
                f"the first of them {wrong[0]}"
            )

    # -- drawing -------------------------------------------------------------------------------------------------------

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        return self.drawing().all_of(requests)

    def drawing(self) -> Drawing:
        return FromServers(self)

    def stream(self, request: DrawRequest) -> Iterator[int]:
        self.check([request])
        with self.with_weights() as servers:
            slot = servers.slots()[0]
            given = self._stream(slot, request)
            try:
                while (part := self._attend(_next(given))) is not None:
                    yield from part
            except (ServerGone, ServerRefused, BadAnswer) as problem:
                raise EngineFailed(f"server {slot.number} did not end its answer: {problem}") from None
            finally:
                self._attend(given.aclose())

    @contextlib.contextmanager
    def with_weights(self) -> Iterator[Servers]:
        """Yield the servers with the weights, while nothing else in this process uses the servers."""
        servers = self._lent()
        with servers.reserved():
            if self._parcel is None:
                self._ready(servers)
                self._replace_parcel(self.version, servers)
            self._bring(servers)
            yield servers

    def check(self, requests: Sequence[DrawRequest]) -> None:
        longest = max((len(one.prompt) + one.sampling.max_new_tokens for one in requests), default=0)
        self.model.check_length(
            longest, "lower `max_prompt_tokens`, which cuts prompts at their beginning, or `max_new_tokens`"
        )
        coldest = min((one.sampling.temperature for one in requests if one.sampling.temperature), default=1.0)
        if coldest < completions.LEAST_TEMPERATURE:
            raise UsageError(
                f"temperature {coldest:g}: vLLM samples at {completions.LEAST_TEMPERATURE} instead; set 0 (greedy) or at least that"
            )

    def changed(self, slot: Slot) -> str:
        """Return the reason why a server cannot have drawn from the weights that it was given; "" if it has drawn from
        them.
        """
        assert self._parcel is not None
        try:
            found = self._parcel.arrived(slot.connection, self.limits.transfer)
        except (ServerGone, ServerRefused) as problem:
            return str(problem)
        return "" if found == self._label else f"it reports the weights {found or 'of no version'} after drawing"

    def renew(self, servers: Servers, lost: dict[int, tuple[Slot, str]], barren: int) -> None:
        """Replace servers that are gone, and bring the weights to them."""
        if lost and barren > RENEWALS:
            slot, why = next(iter(lost.values()))
            raise EngineFailed(
                f"server {slot.number} of vLLM ends or hangs again and again: {why}\n{servers.last_words(slot)}"
            )
        for slot, why in lost.values():
            stops.point()
            servers.renew(slot, why)
        self._bring(servers)

    async def ask(self, client: Any, request: DrawRequest, ended: Any, *, first: bool) -> DrawnResponse:
        assert self._parcel is not None
        if request.early is not None and request.early.json_object:  # the server cannot tell where it ends
            ids: list[int] = []
            logp: list[float] = []
            async for tokens, values, reason in self._parts(client, request):
                before, ids, logp = len(ids), ids + tokens, logp + values
                if (whole := self._finished(ids, logp, request, ended, reason, before)) is not None:
                    return whole
            raise ServerGone("the stream ended before the answer")
        body = completions.body(request, self._reader, self._parcel.name, own_ends=first)
        answer = await connection.post(client, "/v1/completions", body, self.limits.draw)
        return completions.read(answer, request, self._reader, ended, self.version)

    async def _parts(self, client: Any, request: DrawRequest) -> Any:
        """Yield tokens, log-probabilities and the finish reason as they come."""
        assert self._parcel is not None
        body = completions.body(request, self._reader, self._parcel.name, own_ends=False) | {"stream": True}
        async for event in connection.events(client, "/v1/completions", body, self.limits.draw):
            part = completions.part(event, request, self._reader)
            if part is not None:
                yield part

    def _finished(
        self, ids: list[int], logp: list[float], request: DrawRequest, ended: Any, reason: str | None, before: int
    ) -> DrawnResponse | None:
        """Return the response, if it ends with the tokens from `before` on. reason: the server's reason for ending it
        there, or None.
        """
        try:
            at_limit = reason == "length"
            return completions.finished(
                ids, logp, request, self._reader, ended, self.version, at_limit=at_limit, start=before
            )
        except BadAnswer:
            if reason is not None:
                raise
            return None

    async def _stream(self, slot: Slot, request: DrawRequest) -> Any:
        early = request.complete_at
        ended = None if early is None else complete(early, self.model.tokenizer)
        ids: list[int] = []
        logp: list[float] = []
        async with slot.connection.open(self.limits.draw, 1) as client:
            async for tokens, values, reason in self._parts(client, request):
                before, ids, logp = len(ids), ids + tokens, logp + values
                whole = self._finished(ids, logp, request, ended, reason, before)
                yield tokens if whole is None else whole.token_ids[before:]
                if whole is not None:
                    return
        raise ServerGone("the stream ended before the answer")

    def _attend(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work."""
        future = background.start(work)
        for _ in self.ticks(future):
            pass
        return future.result()

    def ticks(self, work: concurrent.futures.Future[T]) -> Iterator[None]:
        """Yield while work goes on in the background, and once after its end. Meanwhile this thread checks whether the
        run is to stop. Raises the exception of the work.
        """
        try:
            while not work.done():
                concurrent.futures.wait([work], POLL)
                stops.point()
                if self._closed and not work.done():
                    raise EngineFailed("the model was closed while it was drawn from")
                yield
            work.result()
        except BaseException:
            work.cancel()
            raise

    # -- life ----------------------------------------------------------------------------------------------------------

    def _lent(self) -> Servers:
        if self._servers is None:
            self._servers = self._servers_of()
        return self._servers

    def close(self) -> None:
        self._closed = True  # for a thread that draws
        servers, self._servers = self._servers, None
        if servers is None:
            return
        if self._parcel is not None:
            with servers.reserved():
                self._discard(self._parcel, servers)
            self._parcel = None
        self._end()


async def _next(parts: Any) -> list[int] | None:
    return await anext(parts, None)
