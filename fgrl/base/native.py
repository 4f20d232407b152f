"""What `auto` means: bfloat16 on devices that multiply it natively, float32 elsewhere.

A CPU without bfloat16 instructions converts every number before it multiplies it, which takes 6 to 15 times as long as
float32. Nothing here imports torch: a plan must be quick.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Literal

DType = Literal["float32", "bfloat16"]

CPU_FLAGS = ("amx_bf16", "avx512_bf16", "bf16")
"""As /proc/cpuinfo names them; the last is that of ARM."""
FIRST_CAPABILITY = 8.0
"""Compute capability of the first CUDA GPUs that multiply bfloat16 (Ampere)."""
INHERITED = "FGRL_NATIVE"
"""Environment variable by which the processes of a distributed stage take over what their parent found: `cpu,device`.
"""
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Devices of NVIDIA's driver, of its driver below Windows, and of AMD's."""
SLOWER = "6 to 15 times slower than float32"


@dataclass(frozen=True)
class Native:
    """The type that a device should compute in, and why."""

    dtype: DType
    why: str


def of_cpu(flags: Collection[str], environment: Mapping[str, str]) -> Native:
    """Return the type for a CPU with these flags. Variables that restrict the instructions of oneDNN or PyTorch count
    as a CPU that lacks the others.
    """
    found = next((flag for flag in CPU_FLAGS if flag in flags), None)
    if found is None:
        return Native("float32", "the CPU has no bfloat16 instructions")
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        limit = environment.get(name, "").upper()
        if limit and not any(part in limit for part in ("BF16", "FP16", "AMX", "AVX10", "ALL", "DEFAULT")):
            return Native("float32", f"{name}={environment[name]} rules out the CPU's bfloat16 instructions")
    if environment.get("ATEN_CPU_CAPABILITY", "").lower() in ("default", "avx2"):
        value = environment["ATEN_CPU_CAPABILITY"]
        return Native("float32", f"ATEN_CPU_CAPABILITY={value} rules out the CPU's bfloat16 instructions")
    return Native("bfloat16", f"the CPU has {found}")


def of_gpus(capabilities: Sequence[float]) -> Native:
    """Return the type for CUDA GPUs of these compute capabilities: that of the oldest, so that all agree."""
    oldest = min(capabilities)
    if oldest >= FIRST_CAPABILITY:
        return Native("bfloat16", f"the GPU has compute capability {oldest}")
    return Native("float32", f"the GPU has compute capability {oldest}, and bfloat16 needs {FIRST_CAPABILITY}")


@cache
def here(accelerator: str = "auto") -> Native:
    """Return the type for this machine. accelerator: "cpu" leaves its GPUs out."""
    if found := os.environ.get(INHERITED):
        cpu, device = found.split(",")
        dtype: DType = "bfloat16" if (cpu if accelerator == "cpu" else device) == "bfloat16" else "float32"
        return Native(dtype, "as in the process that started this one")
    if accelerator != "cpu" and (gpus := _gpus(_build())):
        return gpus
    return of_cpu(_cpu_flags(), os.environ)


def has_gpu() -> bool:
    """Return True if PyTorch sees a GPU. Where no driver is, PyTorch is not imported to ask."""
    if "torch" not in sys.modules and not any(Path(device).exists() for device in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


def gpus() -> int:
    """Return how many GPUs PyTorch sees."""
    if not has_gpu():
        return 0
    import torch

    return torch.cuda.device_count()


def inherited() -> dict[str, str]:
    """Return what the environment of another process needs to find the same."""
    return {INHERITED: f"{here('cpu').dtype},{here().dtype}"}


def _cpu_flags() -> set[str]:
    """Return the flags of the first core; none where the system does not list them."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return set()
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return set(value.split())
    return set()


def _build() -> Literal["cuda", "hip"] | None:
    """Which GPUs the installed PyTorch was built for, read from its file `version.py` without importing it."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return None
    file = spec_from_file_location("torch_version", Path(torch.origin).with_name("version.py"))
    if file is None or file.loader is None:
        return None
    version = module_from_spec(file)
    file.loader.exec_module(version)
    return "cuda" if getattr(version, "cuda", None) else "hip" if getattr(version, "hip", None) else None


def _gpus(build: Literal["cuda", "hip"] | None) -> Native | None:
    """Of the GPUs that PyTorch would use; None where there are none."""
    if build == "hip" and Path("/dev/kfd").exists():
        return Native("bfloat16", "the GPU is one that ROCm supports")
    command = shutil.which("nvidia-smi")
    if build != "cuda" or command is None or os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return None
    query = (command, "--query-gpu=compute_cap", "--format=csv,noheader")
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    found = [float(word) for word in done.stdout.split() if word.replace(".", "").isdigit()]
    return of_gpus(found) if found else None
