"""A small world of components and a recipe over it, for tests of the registry and of recipes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, model_validator
from scratch_registry import scratch

from fgrl import registry
from fgrl.kinds import Stage
from fgrl.registry import Component, File, Settings, Unkeyed
from fgrl.types import Checkpoint, Ref, Report, Samples


class Pen(Settings):
    """What is drawn with. A bare string is `{colour: string}`."""

    colour: Literal["red", "green", "blue"] = "red"
    """Of the ink."""
    width: float = Field(1.0, gt=0)
    """Of the line, in points."""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"colour": value} if isinstance(value, str) else value


class Shape(Component, ABC):
    """Something to draw."""

    @abstractmethod
    def area(self) -> float: ...


class Square(Shape):
    """A square."""

    side: float = Field(gt=0)
    """Length of a side."""
    label: str | None = None
    """Written into it."""

    def area(self) -> float:
        return self.side**2


class Ring(Shape):
    """A circle with a hole."""

    outer: float = Field(2.0, gt=0)
    """Radius."""
    inner: float = Field(1.0, ge=0)
    """Radius of the hole."""

    @model_validator(mode="after")
    def _check(self) -> Ring:
        if self.inner >= self.outer:
            raise ValueError(f"inner {self.inner:g} must be smaller than outer {self.outer:g}")
        return self

    def area(self) -> float:
        return 3.0 * (self.outer**2 - self.inner**2)


class Group(Shape):
    """Several shapes."""

    shapes: list[Shape] = Field(min_length=1)
    """Drawn in this order."""
    named: dict[str, Shape] = {}
    """Shapes that are kept for later."""

    def area(self) -> float:
        return sum(shape.area() for shape in self.shapes)


class Draw(Stage):
    """Draws a shape."""

    makes = Samples

    shape: Shape
    """What to draw."""
    pen: Pen = Field(default_factory=Pen)
    """What with."""
    words: Annotated[str | None, File] = None
    """A file of words to write below."""
    copies: int = Field(1, ge=1)
    """How many."""
    threads: Annotated[int, Unkeyed] = 1
    """Changes only the speed."""

    def run(self, run: Any) -> None: ...


class Train(Stage):
    """Trains something on drawings."""

    makes = Checkpoint

    data: Ref[Samples]
    """Drawings."""
    base: str | Ref[Checkpoint] = "nothing"
    """What to begin with."""
    lr: float = Field(gt=0)
    """Learning rate."""
    betas: list[float] = Field([0.9, 0.95], min_length=2, max_length=2)
    """Decay rates."""
    shuffle: bool = True
    """Mix the drawings."""
    strategy: Literal["auto", "ddp"] = "auto"
    """Over processes."""
    note: dict[str, Any] = {}
    """Anything."""

    def run(self, run: Any) -> None: ...


class Judge(Stage):
    """Compares models."""

    makes = Report

    models: dict[str, Ref[Checkpoint]] = Field(min_length=1)
    """By name."""
    targets: list[str] | Literal["all"] = "all"
    """What to compare."""

    def run(self, run: Any) -> None: ...


@pytest.fixture
def world() -> Iterator[None]:
    """The small world is registered while the test runs."""
    with scratch():
        registry.kind("shape")(Shape)
        for name, cls in {"square": Square, "ring": Ring, "group": Group}.items():
            registry.register(name)(cls)
        for name, stage in {"draw": Draw, "train": Train, "judge": Judge}.items():
            registry.register(name)(stage)
        yield


PARENT = """\
about: "The parent."
seed: 3
vars:
  size: 2.5
  rate: 1e-3
stages:
  sketch:
    name: draw
    shape:
      name: square
      side: "${vars.size}"
    pen:
      colour: green
      width: 0.5
    words: words.txt
    copies: 4
  model:
    name: train
    data: "${out:sketch}"
    lr: "${vars.rate}"
    shuffle: true
"""

CHILD = """\
extends: parent.yaml
about: "The child."
vars:
  depth: 3
stages:
  sketch:
    shape:
      name: group
      shapes:
        - ring
        - name: square
          side: 1.0
          label: a
      named:
        big:
          name: ring
          outer: "${vars.depth}"
  second:
    name: train
    data: "${out:sketch}"
    base: "${out:model}"
    lr: 5e-7
    betas: [0.9, 0.99]
    strategy: auto
    note:
      why: "because"
  verdict:
    name: judge
    models:
      first: "${out:model}"
      other: "${out:second}"
    targets: [a, b]
"""


@pytest.fixture
def recipe(world: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`child.yaml`, which extends `parent.yaml`, in the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("parent.yaml").write_text(PARENT, encoding="utf-8")
    Path("child.yaml").write_text(CHILD, encoding="utf-8")
    Path("words.txt").write_text("some words\n", encoding="utf-8")
    return Path("child.yaml")
