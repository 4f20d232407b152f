"""Code that tries to get out of the strong sandbox. Each attempt is contained, and the run goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

import pytest
from patience import HUNG
from sandbox_places import SMALL, goes_on, sandbox

from fgrl.feedback.sandbox import Call, Outcome, SandboxSpec, walls


def attempt(source: str, *args: object) -> Outcome:
    """The attempt's outcome, after which the same sandbox must still answer."""
    place = sandbox("bubblewrap")
    outcome = place.run(Call(source, "attempt", args))
    assert goes_on(place)
    return outcome


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text("the secret", encoding="utf-8")
    return file


def test_it_cannot_read_files(secret: Path) -> None:
    found = attempt("def attempt(path): return open(path).read()", str(secret))
    assert found.kind == "error"
    assert "FileNotFoundError" in found.detail


@pytest.mark.parametrize(
    "place", [str(Path.home()), "/home", "/etc/passwd", "/proc/self/environ", "/tmp", "/sys", str(Path.cwd())]
)
def test_it_does_not_see_the_machine(place: str) -> None:
    source = """
import os
def attempt(place):
    try:
        return os.listdir(place) if os.path.isdir(place) else open(place).read()
    except OSError:
        return []
"""
    found = attempt(source, place).value
    # where the interpreter lives below the home folder, the names that lead to it are there and nothing else
    ours = Path(os.path.realpath(os.sys.executable))
    assert all(ours.is_relative_to(Path(place) / name) or name.startswith(".pyenv") for name in found)


def test_a_symbolic_link_leads_nowhere(secret: Path) -> None:
    source = """
import os
def attempt(path):
    os.symlink(path, "link")
    os.symlink("/", "root")
    for name in ("link", "root" + path, "../../.." + path):
        try:
            return open(name).read()
        except OSError:
            pass
"""
    assert attempt(source, str(secret)) == Outcome("value", None, seconds=pytest.approx(0, abs=30))


def test_it_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    source = """
import os
def attempt(path, *places):
    done = []
    for place in (path, *places):
        try:
            open(place, "w").write("x")
            done.append(place)
        except OSError:
            pass
        try:
            os.remove(place)
            done.append("removed " + place)
        except OSError:
            pass
    open("its own", "w").write("x")
    return done
"""
    runner = "/sandbox"
    found = attempt(source, str(tmp_path / "written"), "/x", "/usr/lib/x", "/dev/x", "/tmp/x", runner, os.__file__)
    assert found.value == []
    assert list(tmp_path.iterdir()) == []
    assert Path(os.__file__).is_file()


def test_it_cannot_change_the_files_of_its_parent() -> None:
    import fgrl.feedback.sandbox.runner as runner

    before = Path(runner.__file__).read_bytes()
    found = attempt("import os\ndef attempt(): os.chmod('/sandbox', 0o777); open('/sandbox', 'a').write('x')")
    assert found.kind == "error"
    assert Path(runner.__file__).read_bytes() == before


def test_it_has_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = "import socket\ndef attempt(port): socket.create_connection(('127.0.0.1', port), 2)"
        found = attempt(source, server.getsockname()[1])
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()
    assert found.kind == "error"


def test_it_sees_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    found = attempt("import os\ndef attempt(): return dict(os.environ)").value
    assert set(found) <= {*walls.ENVIRONMENT, "LC_CTYPE", "PWD"}
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "start",
    [
        "pid = os.fork()\n        if pid == 0: os._exit(0)",
        "subprocess.run(['/bin/true'])",
        "threading.Thread(target=int).start()",
        "os.posix_spawn(sys.executable, [sys.executable], {})",
        "multiprocessing.Process(target=int).start()",
        "os.execv(sys.executable, [sys.executable, '-c', '1'])",
    ],
)
def test_it_starts_nothing(start: str) -> None:
    """So no bomb, and nothing that it could leave behind."""
    source = f"""
import multiprocessing, os, subprocess, sys, threading
def attempt():
    started = 0
    for _ in range(3):
        try:
            {start.replace(chr(10), chr(10) + "    ")}
            started += 1
        except (OSError, RuntimeError):
            pass
    return started
"""
    assert attempt(source).value == 0


def children(parent: int) -> list[str]:
    """Ids of the processes that this one started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended since
            _state, started_by, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            if started_by == str(parent):
                found.append(process.name)
    return found


def test_a_daemon_is_not_left_behind() -> None:
    """It cannot be started; and when a sandbox is closed, nothing is left of it."""
    place = sandbox("bubblewrap", SandboxSpec(seconds=2))
    place.run(Call("import os\ndef attempt():\n  if os.fork() == 0:\n    os.setsid()\n    while True: pass", "attempt"))
    assert place._worker is not None
    parent = place._worker._process.pid
    inside = children(parent)
    assert inside
    place.close()
    deadline = time.monotonic() + HUNG
    while any(Path(f"/proc/{pid}").exists() for pid in inside):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("target", ["os.getppid()", "1", "-1", "0", "os.getpid()"])
def test_it_sends_no_signals(target: str) -> None:
    found = attempt(f"import os\ndef attempt(): os.kill({target}, 9)")
    assert found.kind == "error"
    assert "PermissionError" in found.detail


def test_it_cannot_look_into_its_parent_or_change_its_limits() -> None:
    source = """
import ctypes, os, resource
def attempt():
    libc, parent, done = ctypes.CDLL(None, use_errno=True), os.getppid(), []
    if libc.ptrace(16, parent, 0, 0) == 0:
        done.append("ptrace")
    for which in (parent, 0):
        try:
            resource.prlimit(which, resource.RLIMIT_CPU, (1, 1))
            done.append("limits")
        except OSError:
            pass
    try:
        os.setpriority(os.PRIO_PROCESS, parent, 19)
        done.append("priority")
    except OSError:
        pass
    return done, resource.getrlimit(resource.RLIMIT_CPU)[0]
"""
    assert attempt(source).value == [[], SMALL.seconds + 1]


@pytest.mark.parametrize(
    "source",
    [
        "def attempt(): return len(bytearray(1 << 31))",
        "def attempt():\n  all = []\n  while True: all.append(bytearray(1 << 20))",
        "def attempt():\n  text = 'x'\n  while True: text += text",
        "def attempt(): return 10 ** 10 ** 10",
    ],
)
def test_memory_is_bounded(source: str) -> None:
    assert attempt(source).kind in ("memory", "timeout")


def test_shared_memory_is_not_to_be_had() -> None:
    source = """
import ctypes, mmap, os
def attempt():
    done = []
    try:
        os.memfd_create("x")
        done.append("memfd")
    except OSError:
        pass
    libc = ctypes.CDLL(None)
    if libc.shmget(0, 4096, 0o1600) >= 0:
        done.append("shm")
    return done
"""
    assert attempt(source).value == []


@pytest.mark.parametrize(
    "source",
    [
        "def attempt():\n  while True: pass",
        "import time\ndef attempt(): time.sleep(1000)",
        "import re\ndef attempt(): return bool(re.match('(a+)+$', 'a' * 60 + 'b'))",
        "import signal, time\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
        "def attempt():\n  while True: time.sleep(1)",
        "def attempt():\n  while True:\n    try:\n      while True: pass\n    except BaseException: pass",
        "import os\ndef attempt():\n  os.close(1); os.close(2); os.close(3)\n  while True: pass",
        "import os\ndef attempt():\n  os.write(3, b'{\"value\": true}')\n  while True: pass",
        "class E(Exception):\n  def __str__(self):\n    while True: pass\ndef attempt(): raise E",
    ],
)  # fmt: skip
def test_time_is_bounded(source: str) -> None:
    place = sandbox("bubblewrap", SandboxSpec(seconds=0.4))
    assert place.run(Call(source, "attempt")).kind == "timeout"
    assert goes_on(place)


def test_output_is_bounded() -> None:
    found = attempt("def attempt():\n  while True: print('x' * 1000)")
    assert found.kind == "output"
    assert len(found.printed) == SMALL.output_kb * 1024
    assert attempt("import os\ndef attempt():\n  while True: os.write(2, b'x' * 1000)").kind == "output"
    assert attempt("def attempt(): print('x' * 1000); return 1").value == 1


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def attempt(): return 'x' * 100_000", "result"),
        ("import os\ndef attempt():\n  while True: os.write(3, b'x' * 1000)", "result"),
        ("import os\ndef attempt(): os.write(3, b'not JSON'); os._exit(0)", "malformed"),
        ("import os\ndef attempt(): os.write(3, b'{\"value\": 1}'); return 2", "malformed"),
        ("import os\ndef attempt(): os.write(3, b'{\"value\": NaN}'); os._exit(0)", "malformed"),
        ("import os\ndef attempt(): os.write(3, b'[' * 8000); os._exit(0)", "malformed"),
        ("import os\ndef attempt(): os.write(3, b'{\"value\": 1, \"error\": 2}'); os._exit(0)", "malformed"),
        ("import os\ndef attempt(): os._exit(0)", "crash"),
        ("import os\ndef attempt(): os._exit(97)", "crash"),
        ("import ctypes\ndef attempt(): ctypes.string_at(0)", "crash"),
        ("import sys\ndef attempt():\n  sys.setrecursionlimit(10 ** 9)\n  attempt()", None),
        ("def attempt(): return {1, 2}", "error"),
        ("def attempt(): return float('nan')", "error"),
        ("def attempt():\n  x = []\n  x.append(x)\n  return x", "error"),
        ("def attempt(): return attempt", "error"),
        ("def attempt(): return chr(0xd800)", "malformed"),
        ("import sys\ndef attempt(): sys.exit(0)", "error"),
        ("def attempt(): raise KeyboardInterrupt", "error"),
        ("class E(Exception):\n  def __str__(self): raise self\ndef attempt(): raise E", "error"),
        ("import nothing_like_this\ndef attempt(): return True", "error"),
        ("import numpy\ndef attempt(): return True", "error"),
        ("import fgrl\ndef attempt(): return True", "error"),
        ("def attempt( return", "error"),
        ("x = 1", "error"),
        ("(" * 100_000, None),
    ],
)  # fmt: skip
def test_what_is_no_value_is_none(source: str, kind: str | None) -> None:
    found = attempt(source)
    assert found.kind == kind or (kind is None and not found.returned)
    assert found.value is None


def test_what_it_says_cannot_move_the_cursor() -> None:
    found = attempt("def attempt(): raise ValueError('\\x1b[2J\\r\\n\\x00' + 'y' * 5000)")
    assert found.detail.isprintable()
    assert len(found.detail) <= 1000


def test_there_is_nothing_on_standard_input() -> None:
    assert attempt("import sys, os\ndef attempt(): return sys.stdin.read() + str(os.read(0, 10))").value == "b''"


def test_its_folder_is_bounded() -> None:
    source = """
def attempt():
    for number in range(16):
        with open(str(number), "wb") as file:
            file.write(bytes(1 << 20))
"""
    found = attempt(source)
    assert found.kind == "error"
    assert "No space left" in found.detail
    assert attempt("def attempt():\n  for n in range(10 ** 7): open(str(n), 'w').close()").kind in ("files", "error")


def test_nothing_is_left_in_its_folder() -> None:
    """Neither files nor anything else that could be read there: the folder is a new one."""
    source = """
import os
def attempt(write):
    found = os.listdir(), oct(os.stat(".").st_mode)
    if write:
        os.makedirs("a/b")
        open("a/b/c", "w").write("left for the next")
        os.chmod("a", 0)
        os.chmod(".", 0o500)
    return found
"""
    first, second = attempt(source, True), attempt(source, False)
    assert first.value == second.value == [[], "0o40700"]


@pytest.mark.parametrize("mode", ["0", "0o100", "0o777"])
def test_its_folder_without_permissions_is_no_end_of_the_sandbox(mode: str) -> None:
    source = f"import os\ndef attempt():\n    open('left', 'w').close()\n    os.chmod('.', {mode})\n    return 1"
    assert attempt(source).value == 1
    waits = source.replace("return 1", "import time; time.sleep(0.2); raise SystemExit")
    outcome = attempt(waits)
    assert outcome.kind == "error"
    assert not outcome.lost


def test_calls_share_no_memory() -> None:
    """What one call does to a module, the next does not see; and chance begins anew."""
    source = """
import builtins, json, random, re
def attempt():
    seen = getattr(builtins, "left", None), re.__doc__ == "left"
    builtins.left, re.__doc__ = 1, "left"
    json.dumps = lambda *a, **k: '{"value": 1}'
    builtins.bool = lambda x: True
    return [*seen, random.random()]
"""
    assert attempt(source).value == 1  # it lies about itself
    honest = source.replace("    json.dumps", "    #")
    first, second = attempt(honest), attempt(honest)
    assert first.value[:2] == second.value[:2] == [None, False]
    assert first.value[2] == second.value[2]
