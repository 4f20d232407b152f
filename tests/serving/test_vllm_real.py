"""The real vLLM 0.32.0, on a CPU: `make evidence`. Set FGRL_VLLM_PYTHON, or make the environment that `fgrl doctor` describes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_helpers import lives
from stub_engine import stage

from fgrl import models, rollouts
from fgrl.base.errors import Stopped
from fgrl.kinds import DrawRequest, Early
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.rollouts.serving import environment
from fgrl.rollouts.serving.servers import Slot
from fgrl.types import Prompt

ITERATIONS = 20
CLOSE = 1e-3
"""Nats between log-probabilities in float32 of the same weights: measured 5e-5 at most, and 0.02 to 4 of others."""
TOPICS = ("the sea", "bread", "trains", "cats")


pytestmark = [pytest.mark.evidence, pytest.mark.smollm2]


@pytest.fixture(autouse=True, scope="module")
def _needs_vllm() -> None:
    found = environment.look()
    if found is None or not found.supported:
        pytest.skip(f"needs vllm: set {environment.VARIABLE}, or {environment.how_to_make()}")


def policy(folder: Path, *, lora: bool) -> models.LanguageModel:
    torch.manual_seed(0)
    spec = ModelSpec(base=str(folder), lora=LoraSpec(r=16) if lora else None)
    model = models.load(spec, trainable=True)
    step(model, 0)
    return model


def step(model: models.LanguageModel, seed: int) -> None:
    """A training step that changes every weight that is trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                size = 0.01 if "lora_" in name else 0.0005
                parameter.add_(torch.randn(parameter.shape, generator=generator) * size)


def asked(model: models.LanguageModel, count: int, seed: int, sampling: Sampling, **more: Any) -> list[DrawRequest]:
    prompts = [rollouts.encode_prompt(model.tokenizer, f"Write one sentence about {topic}.") for topic in TOPICS]
    return [DrawRequest(prompts[row % len(prompts)], sampling, seed, row, **more) for row in range(count)]


def difference(model: models.LanguageModel, requests: list[DrawRequest], drawn: list[Any]) -> float:
    """The largest difference between the engine's log-probabilities and ours, nats."""
    sampling = requests[0].sampling
    tokens = rollouts.pad(
        [one.prompt for one in requests],
        drawn,
        model.pad_id,
        model.eos_ids,
        sampling.min_new_tokens,
    )
    with torch.no_grad():
        ours = model.score(tokens, temperature=sampling.temperature or 1.0).logp
    return max(
        abs(a - b) for row, one in enumerate(drawn) for a, b in zip(one.token_logp, ours[row].tolist(), strict=False)
    )


def running(folder: Path, transfer: str | None, **fields: Any) -> Any:
    return stage(
        folder, transfer=transfer, python=environment.look().python, start_timeout=1500.0, concurrency=64, max_tokens=512,
        **{"checksum_every": 1, **fields},
    )  # fmt: skip


SHORT = Sampling(max_new_tokens=8)


@pytest.mark.parametrize(
    ("transfer", "kinds"), [("adapter", (True,)), ("gloo", (False, True)), ("files", (False, True))]
)
def test_version_checksum_and_probabilities_agree_after_each_of_twenty_iterations(
    smollm2_dir: Path, tmp_path: Path, transfer: str, kinds: tuple[bool, ...]
) -> None:
    with running(tmp_path, transfer) as opened:
        for lora in kinds:
            model = policy(smollm2_dir, lora=lora)
            largest, seconds = 0.0, []
            with opened.engine.open(model) as drawer:
                for number in range(ITERATIONS):
                    step(model, number + 1)
                    began = time.monotonic()
                    drawer.take(model, number)  # raises where version or checksum disagree
                    seconds.append(time.monotonic() - began)
                    requests = asked(model, 2, number, SHORT)
                    largest = max(largest, difference(model, requests, drawer.draw(requests)))
                print(f"{transfer} lora={lora}: {ITERATIONS} transfers, largest difference {largest:.1e} nats, "
                      f"{sorted(seconds)[len(seconds) // 2]:.1f} s each with the checksum", flush=True)  # fmt: skip
                assert largest < CLOSE
                if transfer == "adapter":
                    continue
                # a transfer that does not happen, noticed by the version, and by the checksum where the version lies
                parcel = drawer._parcel
                original = type(parcel).deliver
                for lie in (False, True):
                    step(model, 100 + lie)
                    version = 200 + lie

                    def skipped(self: Any, server: Any, limit: float, lie: bool = lie) -> None:
                        if lie:
                            server.call("/update_weight_version", {"new_version": self.version}, limit=limit)

                    type(parcel).deliver = skipped
                    try:
                        with pytest.raises(Stopped, match="tensors differ" if lie else "the transfer has not arrived"):
                            drawer.take(model, version)
                    finally:
                        type(parcel).deliver = original
                stale = asked(model, 4, 99, SHORT)
                checked, drawer.limits = (
                    drawer.limits,
                    drawer.limits.__class__(**{**vars(drawer.limits), "checksum_every": 0}),
                )
                type(parcel).deliver = skipped
                try:
                    drawer.take(model, 300)  # both checks deceived or off: only the probabilities tell
                finally:
                    type(parcel).deliver, drawer.limits = original, checked
                unnoticed = difference(model, stale, drawer.draw(stale))
                print(f"{transfer} lora={lora}: stale weights, largest difference {unnoticed:.2f} nats", flush=True)
                assert unnoticed > 10 * CLOSE


def test_a_corrupted_tensor_and_a_skipped_adapter_are_noticed(smollm2_dir: Path, tmp_path: Path) -> None:
    model = policy(smollm2_dir, lora=True)
    with running(tmp_path, "adapter") as opened, opened.engine.open(model) as drawer:
        drawer.take(model, 0)
        step(model, 1)
        original = type(drawer._parcel).deliver
        type(drawer._parcel).deliver = lambda self, server, limit: None
        try:
            with pytest.raises(Stopped, match=r"of no version after fgrl-.* was sent"):
                drawer.take(model, 1)
        finally:
            type(drawer._parcel).deliver = original
        step(model, 2)

        def spoiled(self: Any, server: Any, limit: float) -> None:
            self._matrices[5][1].view(-1)[0] += 1
            original(self, server, limit)

        type(drawer._parcel).deliver = spoiled
        try:
            with pytest.raises(
                Stopped, match=r"1 tensors differ, the first of them model.layers.0.\S+lora_B \(another content\)"
            ):
                drawer.take(model, 2)
        finally:
            type(drawer._parcel).deliver = original
        # what is drawn is what hf would draw: truncation, minimum, ends
        sampling = Sampling(max_new_tokens=24, min_new_tokens=6, temperature=0.8, top_p=0.7, top_k=12)
        drawer.take(model, 3)
        requests = asked(model, 8, 5, sampling)
        for request, one in zip(requests, drawer.draw(requests), strict=True):
            assert not set(one.token_ids[:6]) & model.eos_ids
            assert allowed(model, request, one.token_ids)
        plain = asked(model, 8, 6, Sampling(max_new_tokens=24))
        whole = drawer.draw(plain)
        assert difference(model, plain, whole) < CLOSE
        early = Early(strings=(" the", "a "))
        cut = drawer.draw([DrawRequest(one.prompt, one.sampling, one.seed, one.row, early) for one in plain])
        for before, after in zip(whole, cut, strict=True):
            assert before.token_ids[: len(after.token_ids)] == after.token_ids
            text = rollouts.decode(model.tokenizer, after.token_ids)
            assert (after.finish == "early") == any(string in text for string in early.strings)
        assert any(one.finish == "early" for one in cut)
        assert list(drawer.stream(plain[0])) == whole[0].token_ids
        # more tokens of prompts than a server reads in one step
        many = [DrawRequest(Prompt(2 * one.prompt.token_ids), SHORT, 7, one.row) for one in asked(model, 64, 7, SHORT)]
        assert sum(len(one.prompt) for one in many) > 2 * 2048
        assert difference(model, many, drawer.draw(many)) < CLOSE


def allowed(model: models.LanguageModel, request: DrawRequest, ids: list[int]) -> bool:
    """True if `hf` can draw these tokens: each is among the `top_k` most probable ones, and among the fewest of these that hold
    `top_p` of their probability."""
    tokens, sampling = rollouts.pad([list(request.prompt)], [ids], model.pad_id, model.eos_ids), request.sampling
    with torch.no_grad():
        logits = model.logits(model.states(tokens)).float() / sampling.temperature
    logits[: sampling.min_new_tokens, sorted(model.eos_ids)] = -torch.inf
    best, which = logits.topk(sampling.top_k, dim=1)
    shares = best.double().softmax(1)
    kept = shares.cumsum(1) - shares < sampling.top_p + 1e-4  # rounding of two programs
    return all(token in which[place][kept[place]].tolist() for place, token in enumerate(ids))


def processes(slot: Slot) -> list[int]:
    """The server's own, without its guard."""
    assert slot.process is not None
    found, left = [], [slot.process]
    while left:
        process = left.pop()
        with_children = Path(f"/proc/{process}/task/{process}/children")
        children = [int(word) for word in with_children.read_text().split()] if with_children.exists() else []
        found += children
        left += children
    return found


@pytest.fixture
def killers() -> Iterator[list[threading.Thread]]:
    threads: list[threading.Thread] = []
    yield threads
    for thread in threads:
        thread.join()


def test_a_killed_server_is_replaced(smollm2_dir: Path, tmp_path: Path, killers: list[threading.Thread]) -> None:
    model = policy(smollm2_dir, lora=False)
    with running(tmp_path, "gloo") as opened, opened.engine.open(model) as drawer:
        drawer.take(model, 0)
        everything = set(processes(opened.slots()[0]))
        # 1. while drawing
        sampling = Sampling(max_new_tokens=64, min_new_tokens=64)
        requests = asked(model, 8, 1, sampling)

        def later(seconds: float, which: int) -> None:
            victim = processes(opened.slots()[0])[which]
            killers.append(threading.Thread(target=lambda: (time.sleep(seconds), os.kill(victim, signal.SIGKILL))))
            killers[-1].start()

        later(2.0, 0)
        drawn = drawer.draw(requests)
        assert opened.slots()[0].generation == 1
        assert difference(model, requests, drawn) < CLOSE
        everything |= set(processes(opened.slots()[0]))
        # 2. while weights arrive: the process that computes, not the one that listens
        step(model, 1)
        later(1.5, -1)
        drawer.take(model, 1)
        generation = opened.slots()[0].generation
        everything |= set(processes(opened.slots()[0]))
        # 3. while idle
        killers[-1].join()
        os.kill(processes(opened.slots()[0])[0], signal.SIGKILL)
        drawn = drawer.draw(requests)
        assert opened.slots()[0].generation == generation + 1
        assert difference(model, requests, drawn) < CLOSE
        everything |= set(processes(opened.slots()[0]))
    assert generation == 2
    assert not any(lives(process) for process in everything)
