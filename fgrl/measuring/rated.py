"""Common parts of metrics that rate models by games. They write `games-<name>.jsonl` with the prompt, the two models,
the verdict, its source, and the order of presentation of every game.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

from pydantic import PrivateAttr

from fgrl.measuring import elo
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Compared
from fgrl.measuring.elo import Contest, Ratings, RatingSettings
from fgrl.measuring.pairwise import Game
from fgrl.measuring.statistics import Measured
from fgrl.types import write_jsonl

GAMES = "games-*.jsonl"
"""Pattern of the file's name."""


class RatedMetric(RatingSettings, Compared):
    """Metric that rates models by games between their answers. `difference` is to the best model, not to the baseline."""

    versus: str | None = None
    """Model that every other model is compared with; null: every two models are compared, once on each prompt and
    answer.
    """

    _games: list[Game] = PrivateAttr(default_factory=list)

    @abstractmethod
    def games(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> list[Game]:
        """Return the games of at least two models."""

    def check_models(self, names: Collection[str], baseline: str) -> None:
        for field, model in (("versus", self.versus), ("anchor.model", self.anchor.model)):
            if model is not None and model not in names:
                raise ValueError(f"elo: {field} {model!r} is not one of the models: {', '.join(names)}")
        if len(set(names)) < 2:
            raise ValueError("elo rates models by comparing them, and there is only one")

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        self._games = self.games(answers, baseline) if len(answers) > 1 else []
        if not self._games:
            return {}
        if self._run is not None:
            write_jsonl(self._run.out / GAMES.replace("*", self.slug), self._games)
        measured = elo.numbers(self._games, Ratings(Contest.of(self._games), self))
        return {model: measured[model] for model in answers if model in measured}

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        return elo.about(self._games, self) if self._games else ""
