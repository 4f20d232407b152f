"""Resolution of the precision `auto`: bfloat16 on devices with native bfloat16 multiplication, float32 elsewhere.

A CPU without bfloat16 instructions converts every number before it multiplies it, which takes 6 to 15 times as long as
float32. This module does not import torch, so that plans are quick.
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
"""Flags of CPUs with native bfloat16 as listed in /proc/cpuinfo; the last one is for ARM."""
FIRST_CAPABILITY = 8.0
"""Compute capability of the first CUDA GPUs with native bfloat16 multiplication (Ampere)."""
INHERITED = "FGRL_NATIVE"
"""Environment variable that passes the result of the parent process to the processes of a distributed stage:
`cpu,device`.
"""
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Device files of NVIDIA's driver, of NVIDIA's driver under Windows (WSL), and of AMD's driver."""
SLOWER = "6 to 15 times slower than float32"


@dataclass(frozen=True)
class Native:
    """The recommended floating-point type for a device, and the reason."""

    dtype: DType
    why: str


def of_cpu(flags: Collection[str], environment: Mapping[str, str]) -> Native:
    """Return the type for a CPU with these flags. If a variable restricts the instructions of oneDNN or PyTorch, the
    excluded instructions count as missing.
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
    """Return the type for CUDA GPUs with these compute capabilities. The oldest GPU decides, so that all GPUs use the
    same type.
    """
    oldest = min(capabilities)
    if oldest >= FIRST_CAPABILITY:
        return Native("bfloat16", f"the GPU has compute capability {oldest}")
    return Native("float32", f"the GPU has compute capability {oldest}, and bfloat16 needs {FIRST_CAPABILITY}")


@cache
def here(accelerator: str = "auto") -> Native:
    """Return the type for this machine. If `accelerator` is "cpu", its GPUs are ignored."""
    if found := os.environ.get(INHERITED):
        cpu, device = found.split(",")
        dtype: DType = "bfloat16" if (cpu if accelerator == "cpu" else device) == "bfloat16" else "float32"
        return Native(dtype, "as in the process that started this one")
    if accelerator != "cpu" and (gpus := _gpus(_build())):
        return gpus
    return of_cpu(_cpu_flags(), os.environ)


def has_gpu() -> bool:
    """Return True if PyTorch can see a GPU. Without a driver, PyTorch is not imported for this check."""
    if "torch" not in sys.modules and not any(Path(device).exists() for device in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


def gpus() -> int:
    """Return the number of GPUs that PyTorch can see."""
    if not has_gpu():
        return 0
    import torch

    return torch.cuda.device_count()


def inherited() -> dict[str, str]:
    """Return the environment variables with which another process obtains the same result."""
    return {INHERITED: f"{here('cpu').dtype},{here().dtype}"}


def _cpu_flags() -> set[str]:
    """Return the flags of the first CPU core; empty if the system does not list them."""
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
    """Return the GPU platform of the installed PyTorch, read from its file `version.py` without importing PyTorch."""
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
    """Return the type for the GPUs that PyTorch would use; None if there is no GPU."""
    if build == "hip" and Path("/dev/kfd").exists():
        return Native("bfloat16", "the GPU is one that ROCm supports")
    command = shutil.which("nvidia-smi")
    if build != "cuda" or command is None or os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return None
    query = (command, "--query-gpu=compute_cap", "--format=csv,noheader")
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    found = [float(word) for word in done.stdout.split() if word.replace(".", "").isdigit()]
    return of_gpus(found) if found else None
