"""Kinds, names, and what a class must be to get one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import pytest
from scratch_registry import scratch
from wording import said

from fgrl import registry
from fgrl.registry import Component, NotRegistered, Settings, kind, problems, register


class Fruit(Component, ABC):
    """Something to eat."""

    season: ClassVar[str]

    @abstractmethod
    def eat(self) -> str: ...


class Tool(Component, ABC):
    """Something to work with."""


class Apple(Fruit):
    """A round one."""

    season = "autumn"
    weight: float = 1.0
    """In hundreds of grams."""

    def eat(self) -> str:
        return "crunch"


@pytest.fixture(autouse=True)
def _orchard() -> Iterator[None]:
    with scratch():
        kind("fruit")(Fruit)
        kind("tool")(Tool)
        yield


def test_a_registered_class_is_found_by_its_name_and_knows_it() -> None:
    register("apple")(Apple)
    assert registry.names("fruit") == ["apple"]
    assert registry.get("fruit", "apple") is Apple
    assert registry.name_of(Apple) == registry.name_of(Apple()) == ("fruit", "apple")
    assert registry.kinds()["fruit"] is Fruit
    assert registry.kind_of(Apple) == "fruit"
    assert registry.kind_of(int) is None


def test_what_is_registered_in_scratch_is_forgotten() -> None:
    with scratch():
        register("apple")(Apple)
    assert registry.names("fruit") == []
    with pytest.raises(NotRegistered):
        registry.name_of(Apple)


def test_an_unknown_name_or_kind_comes_with_the_nearest_one() -> None:
    register("apple")(Apple)
    with pytest.raises(NotRegistered) as refused:
        registry.get("fruit", "aple")
    said("register", "an unknown name", str(refused.value))
    with pytest.raises(NotRegistered) as refused:
        registry.names("fruits")
    assert 'unknown kind "fruits"; did you mean "fruit"?' in str(refused.value)  # and all kinds of fgrl


def test_a_name_is_taken_once_and_the_error_says_by_whom() -> None:
    register("apple")(Apple)

    class Other(Apple):
        """Another."""

    with pytest.raises(ValueError, match=r"test_names\.py:\d+") as refused:
        register("apple")(Other)
    said("register", "a name that is taken", str(refused.value))


def test_a_file_that_runs_again_may_register_again() -> None:
    register("apple")(Apple)
    register("apple")(Apple)
    assert registry.names("fruit") == ["apple"]


def test_a_kind_is_taken_once() -> None:
    class Other(Component, ABC):
        """Another."""

    with pytest.raises(ValueError, match="fruit") as refused:
        kind("fruit")(Other)
    said("register", "a kind that is taken", str(refused.value))


class Pear(Fruit):
    """Leaves its method open."""

    season = "autumn"


class Plum(Fruit):
    """Does not say when."""

    def eat(self) -> str:
        return "mm"


class Both(Apple, Tool):
    """Of two kinds."""


class Silent(Fruit):
    season = "never"

    def eat(self) -> str:
        return ""


class Bare(Apple):
    """Has a field without help."""

    colour: str = "red"


class Named(Apple):
    """Has a field that recipes use."""

    name: str = "x"
    """A name."""


class Homeless(Component):
    """Of no kind."""


class NotOne(Settings):
    """Only settings."""


@pytest.mark.parametrize("cls", [Pear, Plum, Both, Homeless, NotOne, Silent, Bare, Named])
def test_an_unfinished_class_gets_no_name(cls: type) -> None:
    with pytest.raises(TypeError) as refused:
        register("thing")(cls)
    said("register", cls.__name__, str(refused.value))
    assert registry.names("fruit") == registry.names("tool") == []


@pytest.mark.parametrize("name", ["", " ", "a b", "${x}", "-a", "a/b"])
def test_some_names_cannot_be_written_in_a_recipe(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a name"):
        register(name)(Apple)


@pytest.mark.parametrize("name", ["a", "length_constraints:number_words", "v1.5", "a-b"])
def test_others_can(name: str) -> None:
    register(name)(Apple)
    assert registry.names("fruit") == [name]


@pytest.mark.parametrize(
    ("word", "choices", "meant"),
    [
        ("gpro", ["grpo", "ppo"], "grpo"),
        ("stf", ["sft"], "sft"),
        ("api_key", ["api_key_env"], "api_key_env"),
        ("query_proj", ["q_proj", "o_proj"], "q_proj"),
        ("at most", ["at least", "less than"], None),
        ("stop", ["top_p", "top_k"], None),
        ("--seeds", ["--set", "--stage"], None),
        ("items.yaml", ["mkdocs.yml", "rows.yaml.gz"], None),
    ],
)
def test_a_suggestion_resembles_the_word(word: str, choices: list[str], meant: str | None) -> None:
    assert problems.nearest(word, choices) == meant
