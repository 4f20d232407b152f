"""Sampling with vLLM servers, in their own processes and their own environment."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from fgrl.base import lazy, native
from fgrl.base.errors import Unavailable, UsageError
from fgrl.base.visible import quantity
from fgrl.kinds import CorrectedEngine, Drawer, Elsewhere, Serving, Transfer
from fgrl.registry import ByDevice, Unkeyed, build, name_of, register

if TYPE_CHECKING:
    import torch

    from fgrl.rollouts.serving import drawer, environment, servers
else:
    drawer = lazy.load("fgrl.rollouts.serving.drawer")
    environment = lazy.load("fgrl.rollouts.serving.environment")
    servers = lazy.load("fgrl.rollouts.serving.servers")
    torch = lazy.load("torch")

CPU_CACHE = 1
"""Size in GiB of the cache for keys and values on a CPU, unless `cache_gib` is set."""


@register("vllm")
class VLLM(CorrectedEngine):
    """Samples with vLLM 0.32.0; `fgrl doctor` explains its installation. It starts servers and ends them with the
    stage, or uses running servers.

    After each change of the model, its weights are transferred to the servers, which then report their version. At
    intervals a checksum of every tensor is compared. An incomplete response, or a response to another request, is
    requested again. A server that ends or hangs is replaced, and only the missing responses are requested again.

    A response depends on its random stream, as with other engines. But vLLM does not guarantee the same response on
    another machine, or together with other requests.
    """

    dtype: Annotated[Literal["auto", "float32", "bfloat16"], ByDevice()] = Field("auto", validate_default=True)
    """Floating-point type of the servers' weights and computation. `auto`: bfloat16 if the device multiplies it
    natively, else float32. An `auto` written in a recipe follows the recipe's `dtype`; without this setting, only the
    machine decides.
    """
    ahead: Literal[0, 1] = 0
    """Number of iterations by which responses are drawn ahead. 1: the responses of the next iteration are drawn during
    the training on the current ones, from weights that are one iteration old.
    """
    transfer: Annotated[Transfer | None, Unkeyed] = None
    """Method that transfers weights to the servers. null: `adapter` if the model has one LoRA adapter, else `gloo`."""
    python: Annotated[str | None, Unkeyed] = None
    """Python interpreter of the environment with vLLM. null: the interpreter in the environment variable
    FGRL_VLLM_PYTHON, else `~/.cache/fgrl/vllm/bin/python`.
    """
    servers: Annotated[list[str] | None, Unkeyed] = None
    """Addresses of running servers, such as `http://127.0.0.1:8000` or `unix:/path`, to use instead of starting
    servers. They must have been started with the options that `transfer` needs. A server on another machine needs a key
    for all of its routes, in the environment variable FGRL_VLLM_KEY, because the routes that replace weights have no
    protection of their own.
    """
    copies: Annotated[int, Unkeyed] = Field(1, ge=1, le=1024)
    """Number of servers to start. They share the requests."""
    tensor_parallel: Annotated[int, Unkeyed] = Field(1, ge=1, le=1024)
    """Number of GPUs of each server, over which it divides the model."""
    devices: Annotated[list[int] | None, Unkeyed] = None
    """Indices of visible GPUs for the servers, `tensor_parallel` for each copy, in order. null: the GPUs that follow
    those of the stage's training. If too few are left, the last ones are shared if `memory` is set; otherwise the run
    is refused.
    """
    memory: Annotated[float | None, Unkeyed] = Field(None, gt=0, le=1)
    """Share of each GPU's memory that a server may use, including weights. null: vLLM's default, 0.9. Trainer and
    server on one GPU need a smaller share.
    """
    cache_gib: Annotated[float | None, Unkeyed] = Field(None, gt=0, le=10_000)
    """Size in GiB of a server's cache for keys and values, instead of the remainder of `memory`. null on a CPU: 1."""
    max_tokens: Annotated[int | None, Unkeyed] = Field(None, ge=2)
    """Maximum number of tokens of a prompt and its response. null: the limit of the model, or of the memory if that is
    lower.
    """
    concurrency: Annotated[int, Unkeyed] = Field(256, ge=1, le=65_536)
    """Maximum number of responses that a server draws at the same time. It is lower when the server's memory is full.
    """
    start_timeout: Annotated[float, Unkeyed] = Field(900.0, gt=0, le=86_400)
    """Maximum number of seconds until a server is ready."""
    draw_timeout: Annotated[float, Unkeyed] = Field(1800.0, gt=0, le=604_800)
    """Maximum number of seconds for a response; a server that needs longer is replaced."""
    transfer_timeout: Annotated[float, Unkeyed] = Field(600.0, gt=0, le=86_400)
    """Maximum number of seconds for each step of a transfer."""
    checksum_every: Annotated[int, Unkeyed] = Field(10, ge=0, le=1_000_000)
    """Number of transfers between two comparisons of a checksum of every tensor; the first transfer is always compared.
    0: never.
    """
    options: Annotated[list[str], Unkeyed] = []
    """Further options of vLLM's command line, for the hardware: `["--swap-space", "8"]`. Do not use options that change
    the drawn responses.
    """

    @model_validator(mode="after")
    def _fits(self) -> VLLM:
        if self.servers is not None and not self.servers:
            raise ValueError("servers names none: name their addresses, or leave it out, and they are started")
        for address in self.servers or []:
            if not address.startswith(("http://", "https://", "unix:/")):
                raise ValueError(f"servers: {address} is no address: write it as http://127.0.0.1:8000 or unix:/path")
        wanted = self.copies * self.tensor_parallel
        if self.devices is not None and len(self.devices) != wanted:
            raise ValueError(
                f"devices names {len(self.devices)} GPUs, and {self.copies} copies of {self.tensor_parallel} need {wanted}"
            )
        return self

    def check_machine(self) -> None:
        if not self.servers:
            environment.require(self.python)
            self._gpus()

    def _gpus(self) -> list[int]:
        """Return the GPUs of the servers; [] without GPUs. Raise `Unavailable` if there are too few."""
        visible, wanted, trained = native.gpus(), self.copies * self.tensor_parallel, self._beside
        if not visible or (self.devices and max(self.devices) < visible):
            return self.devices or []
        if self.devices:
            raise Unavailable(f"devices names GPU {max(self.devices)}, and {visible} are visible here, numbered from 0")
        shared = trained + wanted > visible
        if wanted > visible or (shared and self.memory is None):
            raise Unavailable(
                f"the servers need {quantity(wanted, 'GPU')} beside {quantity(trained, 'GPU')} for the training, {trained + wanted} in "
                f"all; visible here: {visible}. Lower train.devices or copies, or set `memory`, the share of a GPU that a server may "
                "take from the training"
            )
        first = visible - wanted if shared else trained
        return list(range(first, first + wanted))

    def draws_ahead(self) -> Literal[0, 1]:
        return self.ahead

    def elsewhere(self) -> Elsewhere:
        transfer = "adapter, or gloo without one" if self.transfer is None else name_of(self.transfer)[1]
        return Elsewhere(
            copies=len(self.servers) if self.servers else self.copies, devices_each=self.tensor_parallel,
            devices=None if self.devices is None else tuple(self.devices), dtype=self.dtype, transfer=transfer,
            sends="adapter" if transfer.startswith("adapter") else "weights", memory=self.memory,
        )  # fmt: skip

    def at_once(self, batch_size: int) -> int:
        return max(batch_size, self.concurrency * self.copies)

    def open(self, model: Any) -> Drawer:
        if self._run is None:
            raise UsageError("the engine vllm works in the stages of a recipe: here is none, so leave `engine` out")
        place = self._run.dir.resolve() / "serving"
        pool = self._run.shared("vllm", lambda: servers.Pool(place, self._run.rank))
        transfer = self.transfer or build(Transfer, _usual(model))
        transfer.setup(self._run)
        serving = transfer.serving(model, self.dtype, place / "models" / _name(model))
        key = self._key(serving)
        limits = drawer.Limits(
            draw=self.draw_timeout, transfer=self.transfer_timeout, concurrency=self.concurrency,
            checksum_every=self.checksum_every, keep=self.ahead > 0,
        )  # fmt: skip
        return drawer.Served(
            model, lambda: pool.take(key, lambda place: self._make(place, serving)), transfer, self.dtype, limits,
            end=lambda: pool.give_back(key),
        )  # fmt: skip

    def _key(self, serving: Serving) -> str:
        """Return a hash of the properties that servers must share to be interchangeable."""
        fields = (
            "servers",
            "copies",
            "tensor_parallel",
            "devices",
            "memory",
            "cache_gib",
            "max_tokens",
            "options",
            "dtype",
        )
        parts = [serving.model, serving.arguments, *(getattr(self, name) for name in fields)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    def _make(self, place: Path, serving: Serving) -> Any:
        launch = None if self.servers else self._launch(serving)
        return servers.Servers(
            place, launch, copies=self.copies, addresses=self.servers or (), start_limit=self.start_timeout,
            rank=self._run.rank, say=self._run.say,
        )  # fmt: skip

    def _launch(self, serving: Serving) -> Any:
        found = environment.require(self.python)
        cpu = self._run.device.type == "cpu" and not torch.cuda.is_available()
        own = ["--model", serving.model, "--dtype", self.dtype, "--tensor-parallel-size", str(self.tensor_parallel)]
        own += ["--max-model-len", str(self.max_tokens or "auto"), "--max-num-seqs", str(self.concurrency)]
        # the model's own settings of sampling are none of the recipe's; log-probabilities are those at the temperature
        own += ["--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"]
        own += ["--worker-extension-cls", "fgrl_worker.Extension", "--disable-uvicorn-access-log"]
        variables = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        if cpu:
            own += ["--enforce-eager"]  # compiling needs a C++ compiler, at the first request
            # the sampler rewinds the random numbers of a prompt that is read in two parts, which those of a CPU cannot
            own += ["--no-enable-chunked-prefill"]
            gib = max(1, round(self.cache_gib or CPU_CACHE))
            variables |= {"VLLM_CPU_KVCACHE_SPACE": str(gib), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        elif self.cache_gib is not None:
            own += ["--kv-cache-memory-bytes", str(round(self.cache_gib * 2**30))]
        if self.memory is not None:
            own += ["--gpu-memory-utilization", str(self.memory)]
        gpus, size = self._gpus(), self.tensor_parallel
        groups = tuple(tuple(gpus[i : i + size]) for i in range(0, len(gpus), size))
        return servers.Launch(
            found.python, (*own, *serving.arguments, *self.options), variables | serving.environment, groups
        )


def _usual(model: Any) -> str:
    """Return the default transfer for a model."""
    return "adapter" if model.adapted and len(model.net.peft_config) == 1 else "gloo"


def _name(model: Any) -> str:
    """Return a hash that identifies the architecture and the tokenizer of a model."""
    config = model.transformer.config.to_json_string()
    parts = (type(model.transformer).__name__, config, model.base.name)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
