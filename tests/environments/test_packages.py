"""Games of other packages, unchanged: scripted answers with the package's own rewards, and three iterations of training."""

from __future__ import annotations

import importlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
from scratch_registry import scratch_imports
from scripted import played, rewards
from training_helpers import tiny

from fgrl.base.errors import UserCodeError
from fgrl.components.environments.gym import Gym
from fgrl.components.environments.openenv import OpenEnv
from fgrl.experiments.recipe import load
from fgrl.training.online import OnlineRounds
from fgrl.types import Sample

RECIPE = """
about: "A game of another package."
seed: 3
stages:
  policy:
    name: rl
    prompts: {prompts}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: {reward}
    algorithm: {{name: grpo}}
    rollout:
      batch_size: 8
      per_prompt: 4
      environment: {environment}
      sampling: {{max_new_tokens: 400, max_prompt_tokens: 600, batch_size: 8}}
    train: {{lr: 1e-2, iterations: 3, batch_size: 8, micro_batch_size: 4, accelerator: cpu}}
"""
LONG = "{name: function, path: long.py:score}"
SEEDS = "{name: seeds, count: 6}"
SEED = Sample(id="0", prompt="", meta={"seed": 7})


def needs(package: str, extra: str) -> Any:
    """Skip where a package is not there."""
    pytest.importorskip(package, reason=f"needs {package}: pip install 'fgrl[{extra}]'")
    return importlib.import_module(package)


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    return tiny(tiny_model_dir)


def trained(
    folder: Path, base: Path, environment: str, prompts: str = SEEDS, reward: str = "environment"
) -> list[dict[str, Any]]:
    with scratch_imports():
        path = folder / "recipe.yaml"
        path.write_text(RECIPE.format(base=base, environment=environment, prompts=prompts, reward=reward))
        load(path).stages["policy"].run(tiny_recipe.a_run(folder / "run", "policy"))
    log = tiny_recipe.log(folder / "run")
    assert len(log) == 3
    print([{name: row.get(name) for name in ("reward", "turns", "tokens", "lost", "missing")} for row in log])
    return log


def test_gem(model: Any, tmp_path: Path, tiny_model_dir: Path) -> None:
    gem = needs("gem", "gym")
    arguments = {"env_id": "game:GuessTheNumber-v0-easy"}
    own = gem.make(**arguments)
    own.reset(seed=7)
    wrong = [guess for guess in range(own.min_number, own.max_number + 1) if guess != own.game_number][:2]
    said = [f"I say \\boxed{{{guess}}}" for guess in (*wrong, own.game_number)]
    talk = played(model, Gym(make="gem:make", arguments=arguments), said, SEED)
    own.reset(seed=7)
    expected = [own.step(text) for text in said]
    print(rewards(talk), [turn.observation for turn in talk.turns])
    assert rewards(talk) == [reward for _seen, reward, *_rest in expected]
    assert [turn.observation for turn in talk.turns] == [seen for seen, *_rest in expected]
    assert rewards(talk)[-1] == 1.0
    assert talk.terminated
    assert talk.prompt.turns[-1].content.startswith("You are playing Guess The Number.")
    trained(
        tmp_path, tiny_model_dir, '{name: gym, make: "gem:make", arguments: {env_id: "game:GuessTheNumber-v0-easy"}}'
    )
    with pytest.raises(UserCodeError, match=r"Environment game:Chess-v0 not found in registry"):
        played(model, Gym(make="gem:make", arguments={"env_id": "game:Chess-v0"}), ["a"], SEED)


GAMES = {"gem": "game:Mastermind-v0-easy", "textarena": "GuessTheNumber-v0-raw"}


@pytest.mark.parametrize("package", GAMES)
def test_a_killed_training_ends_with_the_same_bytes(
    package: str, tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The games draw from the random state of the process; what was drawn is replayed to them."""
    needs(package, "gym")
    arguments = f'{{env_id: "{GAMES[package]}"}}'
    game = f'{{name: gym, make: "{package}:make", arguments: {arguments}, max_turns: 3, max_turn_tokens: 40}}'
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
        (folder / "long.py").write_text(
            "def score(completions, **_):\n    return [len(str(each)) / 100 for each in completions]\n"
        )
    log = trained(folders[0], tiny_model_dir, game, reward=LONG)
    assert len({row["reward"] for row in log}) == 3

    def killed(_self: OnlineRounds, _rollout: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(OnlineRounds, "_scored", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(folders[1], tiny_model_dir, game, reward=LONG)
    monkeypatch.undo()
    drawn = next((folders[1] / "run" / "drawn").iterdir())
    lines = drawn.read_bytes().split(b"\n")
    drawn.write_bytes(b"\n".join(lines[: len(lines) // 2]))  # in the middle of the conversations
    random.seed(1)  # a new process has other random numbers
    assert trained(folders[1], tiny_model_dir, game, reward=LONG) == log
    for what in (tiny_recipe.weights, lambda out: (out / "rollouts.jsonl").read_bytes()):
        whole, again = (what(folder / "run" / "out") for folder in folders)
        assert whole == again


@pytest.mark.parametrize("variant", ["", "-raw"])
def test_textarena(model: Any, tmp_path: Path, tiny_model_dir: Path, variant: str) -> None:
    textarena = needs("textarena", "gym")
    game = f"GuessTheNumber-v0{variant}"
    own = textarena.make("GuessTheNumber-v0-raw")
    own.reset(num_players=1, seed=7)
    wrong = [guess for guess in range(1, 21) if guess != own.game_number][:3]
    said = [f"[{guess}]" for guess in (*wrong, own.game_number)]
    talk = played(model, Gym(make="textarena:make", arguments={"env_id": game}), said, SEED)
    print(rewards(talk), [turn.observation for turn in talk.turns])
    assert rewards(talk) == [0.0, 0.0, 0.0, 1.0]
    assert all("The target number is " in turn.observation for turn in talk.turns[:3])
    assert all(turn.observation.count("target number") == 1 for turn in talk.turns[:3])
    assert "Congratulations" in talk.turns[3].observation
    assert talk.terminated
    trained(tmp_path, tiny_model_dir, f'{{name: gym, make: "textarena:make", arguments: {{env_id: "{game}"}}}}')
    for many in ("TicTacToe-v0", "SpiteAndMalice-v0", "PublicGoodsGame-v0"):
        with pytest.raises(UserCodeError, match=r"(players|State).*\n.*games for one player can be played"):
            played(model, Gym(make="textarena:make", arguments={"env_id": many}), ["a"], SEED)


def test_skyrl_gym(model: Any, tmp_path: Path, tiny_model_dir: Path) -> None:
    needs("skyrl_gym", "gym")
    environment = Gym(make="skyrl_gym:make", arguments={"id": "gsm8k_multi_turn"}, process_random=False, max_turns=5)
    sample = Sample(id="0", prompt="What is 6 times 7?", reference="42")
    talk = played(model, environment, ["Perhaps 41.", "#### 41", "It is #### 42"], sample)
    print(rewards(talk), [turn.observation for turn in talk.turns])
    assert rewards(talk) == [0.0, pytest.approx(0.2 / 5), 1.0]
    assert talk.turns[2].numbers["steps"] == 3
    assert talk.terminated
    lines = [json.dumps({"id": str(n), "prompt": f"What is {n} and 1?", "reference": str(n + 1)}) for n in range(6)]
    (tmp_path / "sums.jsonl").write_text("\n".join(lines))
    trained(
        tmp_path, tiny_model_dir,
        '{name: gym, make: "skyrl_gym:make", process_random: false, arguments: {id: gsm8k_multi_turn}, max_turns: 3, max_turn_tokens: 40}',
        "{name: jsonl, path: sums.jsonl, format: prompts, columns: {reference: reference}}",
    )  # fmt: skip


@pytest.fixture
def served() -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of an OpenEnv server on loopback, and what ends it."""
    needs("openenv", "openenv")
    uvicorn = needs("uvicorn", "openenv")
    import number_server

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(number_server.app(), host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.05)

    def stop() -> None:
        server.should_exit = server.force_exit = True
        thread.join(20)

    yield f"http://127.0.0.1:{port}", stop
    stop()


def test_a_server_that_goes_away(served: tuple[str, Callable[[], None]]) -> None:
    url, stop = served
    episode = OpenEnv(url=url, action="guess").begin(SEED, 7)
    assert episode.step("3")[1] == -0.25
    stop()
    with pytest.raises(ConnectionError):
        episode.step("4")
    episode.close()


def test_openenv(served: tuple[str, Callable[[], None]], model: Any, tmp_path: Path, tiny_model_dir: Path) -> None:
    url = served[0]
    environment = OpenEnv(url=url, action="guess", observation="hint")
    talk = played(model, environment, ["0", "what?", "107", "99"], SEED)
    print(rewards(talk), [turn.observation for turn in talk.turns])
    assert talk.prompt.turns[-1].content == "Guess a number above 99."
    assert [turn.observation for turn in talk.turns][::2] == ["higher", "right"]
    assert rewards(talk) == [-0.25, 0.0, 1.0]
    assert "Server error" in (talk.turns[1].error or "")
    assert talk.terminated
    whole = played(model, OpenEnv(url=url, action="guess"), ["107"], SEED)
    assert whole.turns[0].observation == '{"hint": "right"}'
    limited = played(
        model, environment, ["1", "2", "3", "4"], SEED.model_copy(update={"meta": {"seed": 7, "limit": 3}})
    )
    assert len(limited.turns) == 3
    assert not limited.terminated
    gone = OpenEnv(url="http://127.0.0.1:9", action="guess")
    assert (played(model, gone, ["1"], SEED).lost or "").startswith("ConnectionError: ")
    trained(
        tmp_path, tiny_model_dir,
        f"{{name: openenv, url: \"{url}\", action: guess, observation: hint, max_turns: 4, max_turn_tokens: 12}}",
    )  # fmt: skip


def test_trls_environments(model: Any, tmp_path: Path, tiny_model_dir: Path) -> None:
    words = ["level", "radar", "noon", "rotor", "civic", "kayak"]
    rows = [json.dumps({"id": word, "prompt": "Find the word.", "word": word}) for word in words]
    (tmp_path / "words.jsonl").write_text("\n".join(rows))
    trained(
        tmp_path, tiny_model_dir,
        f'{{name: functions, factory: "{Path(__file__).with_name("word_env.py")}:WordEnv", max_turns: 3, max_turn_tokens: 40}}',
        "{name: jsonl, path: words.jsonl, format: prompts, columns: {meta: [word]}}",
    )  # fmt: skip
