"""Which type a device multiplies natively: every kind of CPU and GPU, by its flags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fgrl.base import native

AVX2 = ["sse4_2", "avx", "fma", "f16c", "avx2"]
AVX512 = [*AVX2, "avx512f", "avx512bw", "avx512vl", "avx512_vnni"]
AVX512_BF16 = [*AVX512, "avx512_bf16"]
AMX = [*AVX512_BF16, "amx_tile", "amx_int8", "amx_bf16"]
ARM = ["fp", "asimd", "fphp", "asimdhp", "sve"]
ARM_BF16 = [*ARM, "svebf16", "i8mm", "bf16"]


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        (AVX2, "float32"), (AVX512, "float32"), (AVX512_BF16, "bfloat16"), (AMX, "bfloat16"),
        (ARM, "float32"), (ARM_BF16, "bfloat16"), ([], "float32"),
    ],
    ids=["AVX2", "AVX512", "AVX512-BF16", "AMX", "ARM", "ARM bf16", "unknown"],
)  # fmt: skip
def test_a_cpu_is_judged_by_its_flags(flags: list[str], dtype: str) -> None:
    assert native.of_cpu(flags, {}).dtype == dtype


@pytest.mark.parametrize(
    ("variable", "value", "dtype"),
    [
        ("ONEDNN_MAX_CPU_ISA", "AVX2", "float32"),
        ("ONEDNN_MAX_CPU_ISA", "avx512_core_vnni", "float32"),
        ("DNNL_MAX_CPU_ISA", "AVX2", "float32"),
        ("ATEN_CPU_CAPABILITY", "avx2", "float32"),
        ("ATEN_CPU_CAPABILITY", "default", "float32"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", "bfloat16"),
        ("ONEDNN_MAX_CPU_ISA", "DEFAULT", "bfloat16"),
        ("ATEN_CPU_CAPABILITY", "avx512", "bfloat16"),
    ],
)
def test_variables_that_restrict_a_cpu_count(variable: str, value: str, dtype: str) -> None:
    found = native.of_cpu(AMX, {variable: value})
    assert found.dtype == dtype
    assert (variable in found.why) == (dtype == "float32")


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [([8.0], "bfloat16"), ([9.0, 12.0], "bfloat16"), ([7.5], "float32"), ([9.0, 7.0], "float32")],
)
def test_gpus_are_judged_by_the_oldest(capabilities: list[float], dtype: str) -> None:
    assert native.of_gpus(capabilities).dtype == dtype


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with an AVX2 processor, and the folder of its programs."""
    native.here.cache_clear()
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(native, "_cpu_flags", lambda: set(AVX2))
    yield tmp_path
    native.here.cache_clear()


def nvidia_smi(folder: Path, *capabilities: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + "".join(f"echo {capability}\n" for capability in capabilities), encoding="utf-8")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("build", "capabilities", "visible", "dtype"),
    [
        ("cuda", ["8.9"], None, "bfloat16"),
        ("cuda", ["8.9", "7.0"], None, "float32"),
        ("cuda", ["8.9"], "", "float32"),  # hidden
        (None, ["8.9"], None, "float32"),  # PyTorch without CUDA computes on the CPU
        ("cuda", [], None, "float32"),
    ],
)
def test_a_gpu_counts_where_pytorch_would_use_it(
    build: str | None, capabilities: list[str], visible: str | None, dtype: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    nvidia_smi(machine, *capabilities)
    monkeypatch.setattr(native, "_build", lambda: build)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert native.here().dtype == dtype
    assert native.here("cpu").dtype == "float32"


def test_the_build_is_that_of_the_installed_pytorch() -> None:
    assert native._build() == ("cuda" if torch.version.cuda else "hip" if torch.version.hip else None)


def test_processes_of_a_stage_find_what_their_parent_found(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(machine, "9.0")
    monkeypatch.setattr(native, "_build", lambda: "cuda")
    for name, value in native.inherited().items():
        monkeypatch.setenv(name, value)
    (machine / "nvidia-smi").unlink()
    native.here.cache_clear()
    assert (native.here().dtype, native.here("cpu").dtype) == ("bfloat16", "float32")
