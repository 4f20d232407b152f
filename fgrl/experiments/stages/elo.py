"""Elo ratings of models from recorded verdicts, for example verdicts of people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.experiments.stages import names
from fgrl.kinds import Meaning, Reader, Run, Stage
from fgrl.measuring import comparison, elo, pairwise, rated
from fgrl.measuring.elo import Contest, Ratings, RatingSettings
from fgrl.measuring.observations import Observations, Observed, digest
from fgrl.registry import register
from fgrl.types import Report, Sample, write_jsonl

DEPENDS = ("anchor", "ridge", "by", "version")
"""Settings that change the ratings."""


@register("elo")
class EloStage(Stage, RatingSettings):
    """Elo ratings from verdicts in samples: verdicts of people, as the annotation page exports them, or of any judge.

    The compared responses have the name of their model as `by`. If several people gave verdicts on two responses, each
    verdict is a game. Intervals resample prompts, with all verdicts on them; `meta.prompt_id` names the prompt if
    several samples compare answers to the same one. The numbers are those of the metric `elo`; `fgrl elo` prints the
    table.
    """

    makes = Report
    uses_torch: ClassVar[bool] = False

    verdicts: Reader
    """Reader of samples with `verdicts`, for example {name: jsonl, path: people.jsonl}."""
    by: list[str] | None = Field(None, min_length=1)
    """People or models whose verdicts count; null: all."""
    title: str = Field("elo", pattern=r"^\w[\w-]*$")
    """Name in tables."""
    baseline: str | None = None
    """Name of the model for differences; null: only differences to the best model."""

    @model_validator(mode="after")
    def _title(self) -> EloStage:
        names.check("table", [self.title], None)
        return self

    def run(self, run: Run) -> dict[str, Any]:
        self.setup(run)
        # 1. games
        samples = list(islice(self.verdicts.read(), run.limit))
        games = list(pairwise.recorded_games(samples, self.by))
        if not games:
            raise DataError(self._nothing([verdict.by for sample in samples for verdict in sample.verdicts or ()]))
        models = sorted({name for game in games for name in (game.first, game.second)})
        if self.baseline is not None and self.baseline not in models:
            raise DataError(f"baseline {self.baseline!r} has no games; there are games of {', '.join(models)}")
        # 2. ratings
        ratings = Ratings(Contest.of(games), self)
        numbers = elo.numbers(games, ratings)
        judges = dict(sorted(Counter(game.by or "unknown" for game in games).items()))
        write_jsonl(run.out / rated.GAMES.replace("*", self.title), games)
        alike = {model: _alike(samples, judges, model) for model in models}
        about_fit = elo.about(games, self)
        observed = Observed(numbers, self.bootstrap._asdict(), self.baseline, about_fit, DEPENDS, alike)
        metrics = {self.title: observed.derived()}
        about = {"purpose": "goal", "numbers": {"rating": Meaning("Elo rating", "higher")._asdict()}}
        observations = Observations({self.title: observed})
        means = comparison.write(run.out, self.baseline, metrics, {self.title: about}, observations)
        for model in models:
            if reason := numbers[model]["rating"].missing:
                run.say(f"warning: {model} has no rating: {reason}")
        counts = {"games": len(games), "prompts": len(ratings.contest.prompts), "models": models, "judges": judges}
        return {**counts, "best": ratings.best, "measured": means}

    def _nothing(self, judges: list[str]) -> str:
        if not judges:
            return "no sample has `verdicts`: the file wants samples with two responses and the verdict on them"
        known = ", ".join(sorted({judge or "(unknown)" for judge in judges}))
        return f"no verdicts are by {' or '.join(self.by or [])}; there are verdicts by {known}"


def _alike(samples: Sequence[Sample], judges: Iterable[str], model: str) -> dict[str, str]:
    """Return the inputs of a rating other than the model's own responses."""
    responses: dict[str, list[tuple[str, str]]] = {}
    for sample in samples:
        for response in sample.responses:
            if response.by != model:
                responses.setdefault(f"answers of {response.by}", []).append((sample.id, response.text))
    return {name: digest(own) for name, own in responses.items()} | {"judges": ", ".join(judges)}
