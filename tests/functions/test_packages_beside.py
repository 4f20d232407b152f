"""A package in the folder of a file of functions is the file's own, as a file beside it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import train_tokenizer
from function_helpers import component, rollout_of, write
from scratch_registry import scratch

from fgrl.base.errors import UserCodeError
from fgrl.kinds import Reward
from fgrl.kinds.functions.file import key_of
from fgrl.registry import Problems, build, import_file, names, outside
from fgrl.types import Rollout

SCORE = "def score(completions):\n    return [float(WHO) for _ in completions]\n"
LATE = "def score(completions):\n    from graders.core import WHO\n    return [float(WHO) for _ in completions]\n"


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    return rollout_of(["a"], tokenizer=train_tokenizer())


@pytest.fixture(autouse=True)
def _nothing_in_sys(tmp_path: Path) -> Iterator[None]:
    path = list(sys.path)
    yield
    assert sys.path == path
    assert not [name for name in sys.modules if name.partition(".")[0] in ("graders", "helper")]


def files(folder: Path, sources: dict[str, str]) -> Path:
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder, source, f"{name}.py")
    return folder


def scored(folder: Path, rollout: Rollout) -> float:
    return component("reward", folder, path="rewards.py:score").scored(rollout).response.item()


@pytest.mark.parametrize("rewards", [f"from graders.core import WHO\n{SCORE}", LATE])
@pytest.mark.parametrize("init", [True, False])
def test_packages_of_the_same_name_in_two_folders_do_not_meet(
    rewards: str, init: bool, tmp_path: Path, rollout: Rollout
) -> None:
    made = []
    for number in (1, 2):
        folder = files(tmp_path / str(number), {"rewards": rewards, "graders/core": f"WHO = {number}\n"})
        if init:
            (folder / "graders" / "__init__.py").touch()
        made.append(component("reward", folder, path="rewards.py:score"))
    assert [each.scored(rollout).response.item() for each in [*made, *made]] == [1.0, 2.0, 1.0, 2.0]


@pytest.mark.parametrize("rewards", [f"from graders.core import WHO\n{SCORE}", LATE])
def test_an_edit_of_a_package_is_seen_and_counts_for_the_key(rewards: str, tmp_path: Path, rollout: Rollout) -> None:
    """Also of a part of it that another part imports, and of a file beside it."""
    core = (
        "from helper import MORE\nfrom .parts import PART\nfrom graders.deep import one\nWHO = PART + MORE + one.ONE\n"
    )
    sources = {
        "rewards": rewards, "helper": "MORE = 1\n", "graders/__init__": "", "graders/core": core,
        "graders/parts": "PART = 1\n", "graders/deep/one": "ONE = 1\n",
    }  # fmt: skip
    folder = files(tmp_path, sources)
    value = str(folder / "rewards.py:score")
    keys, expected = key_of([value]), 3.0
    assert scored(folder, rollout) == expected
    assert key_of([value]) == keys, "before and after it is imported"
    assert all(f"{name}.py " in keys[0] for name in ("helper", "graders/core", "graders/deep/one", "graders/__init__"))
    for edit in ({"graders/parts": "PART = 2\n"}, {"graders/deep/one": "ONE = 2\n"}, {"helper": "MORE = 2\n"}):
        files(folder, edit)
        assert key_of([value]) != keys
        keys, expected = key_of([value]), expected + 1
        assert scored(folder, rollout) == expected


def test_functions_of_a_package_import_when_they_run(tmp_path: Path, rollout: Rollout) -> None:
    core = "def who():\n    import helper, graders.late\n    from . import late\n    return helper.MORE + late.LATE + graders.late.LATE\n"
    rewards = (
        "import graders.core as core\ndef score(completions):\n    return [float(core.who()) for _ in completions]\n"
    )
    sources = {"rewards": rewards, "graders/core": core, "graders/late": "LATE = 1\n"}
    made = [
        component("reward", files(tmp_path / str(number), sources | {"helper": f"MORE = {number}\n"}), path="rewards.py:score")
        for number in (1, 2)
    ]  # fmt: skip
    assert [each.scored(rollout).response.item() for each in [*made, *made]] == [3.0, 4.0, 3.0, 4.0]


def test_a_package_comes_before_an_installed_one_and_a_mere_folder_after_it(tmp_path: Path, rollout: Rollout) -> None:
    folder = files(tmp_path, {"rewards": f"from yaml import WHO\n{SCORE}", "yaml/__init__": "WHO = 5\n"})
    assert scored(folder, rollout) == 5.0
    (folder / "yaml" / "__init__.py").rename(folder / "yaml" / "download.py")
    files(folder, {"rewards": "import yaml\nWHO = yaml.safe_load('7')\n" + SCORE})
    assert scored(folder, rollout) == 7.0
    assert "yaml" not in key_of([str(folder / "rewards.py:score")])[0]


def test_what_a_package_remembers_does_not_reach_another_component(tmp_path: Path, rollout: Rollout) -> None:
    score = (
        "def score(completions):\n    core.SEEN.append(1)\n    return [float(len(core.SEEN)) for _ in completions]\n"
    )
    folder = files(tmp_path, {"rewards": f"from graders import core\n{score}", "graders/core": "SEEN = []\n"})
    first = component("reward", folder, path="rewards.py:score")
    assert [first.scored(rollout).response.item() for _ in range(2)] == [1.0, 2.0]
    assert scored(folder, rollout) == 1.0
    assert first.scored(rollout).response.item() == 3.0


def test_an_error_in_a_package_is_reported_and_can_be_corrected(
    tmp_path: Path, rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = files(tmp_path, {"rewards": "from graders import core\nscore = core.score\n", "graders/core": "1 / 0\n"})
    with pytest.raises(Problems, match=r"rewards\.py:1:1: path: cannot be imported: ZeroDivisionError") as caught:
        component("reward", folder, path="rewards.py:score")
    assert "raised at graders/core.py:1" in str(caught.value)
    files(folder, {"graders/core": "def score(completions):\n    return [text.missing for text in completions]\n"})
    with pytest.raises(UserCodeError, match=r"^graders/core\.py:2: score raised AttributeError"):
        scored(folder, rollout)


REWARD = '''
from fgrl.kinds import Reward
from fgrl.registry import register

@register("packaged")
class Packaged(Reward):
    """A reward of a package."""

    def score(self, rollout):
        raise NotImplementedError({value})
'''


def test_components_of_a_package_are_those_of_the_file_that_imports_it(tmp_path: Path) -> None:
    def built() -> Any:
        import_file(folder / "own.py")
        return build(Reward, "packaged")

    folder = files(tmp_path, {"own": "import graders.core\n", "graders/core": REWARD.format(value=1)})
    with scratch():
        first = built()
        assert type(built()) is type(first)
        files(folder, {"graders/core": REWARD.format(value=2)})
        assert type(built()) is not type(first)
        outside.forget_file(folder.resolve() / "graders" / "core.py")
        assert "packaged" not in names("reward")
        assert type(built()) is not type(first)
        assert {file.name for file in outside.used_by((folder / "own.py").resolve())} == {"core.py"}
