"""The two benchmarks that a method can be ranked in: single answers, and conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fgrl_benchmark import benchmark, comparisons


@dataclass(frozen=True)
class World:
    """A part of a benchmark that takes minutes: two of its tasks, and five of its seeds."""

    name: str
    recipe: str
    """File that the recipes of methods extend."""
    tuning: str
    """Phase of `plan.yaml` that chooses settings."""
    test: str
    """Phase whose split, seeds and settings are those of a test."""
    compared: Sequence[str]
    """Phases that have the lines of other methods, which train for the same number of iterations."""
    tasks: Sequence[str]
    seeds: Sequence[int]
    quality: Sequence[str]
    """Measures of the place of the credit."""
    primary: str
    """Meaning of `right`."""

    def plan(self, phase: str, method: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return a phase on these tasks, with one more method."""
        return {**benchmark.read("plan.yaml")[phase], "tasks": list(self.tasks), "own": dict(method)}

    @property
    def methods(self) -> dict[str, Any]:
        """Methods that are part of the benchmark."""
        return benchmark.methods_of(benchmark.read("plan.yaml")[self.test])

    @property
    def start(self) -> str:
        """Recipe of the model that trainings start from."""
        return str(benchmark.read("plan.yaml")[self.test].get("start", "start.yaml"))

    def known(self) -> comparisons.Values:
        """Return the lines of other methods, on these tasks and seeds."""
        found = comparisons.by_task(*self.compared)
        return {
            task: {
                method: chosen for method, lines in found[task].items()
                if (chosen := {seed: line for seed, line in lines.items() if seed in self.seeds})
            }
            for task in self.tasks
        }  # fmt: skip


WORDS = World(
    "words", "task.yaml", "tune", "test", comparisons.EQUAL_ITERATIONS, ("opposites", "code"), range(1000, 1005),
    comparisons.QUALITY, "right words",
)  # fmt: skip
TURNS = World(
    "turns", "turns.yaml", "turns_tune", "turns_test", ("turns_test",), ("lookup", "halves"), range(2000, 2005), ("sign", "auc"),
    "successes",
)  # fmt: skip
WORLDS = {world.name: world for world in (WORDS, TURNS)}
