"""Each suggestion of the corpus is tried: what `fgrl` says to type next can be typed."""

from __future__ import annotations

from pathlib import Path

import pytest
import score
import suggestions

WORDING = Path(__file__).parents[1] / "wording"


@pytest.mark.parametrize("mistake", score.mistakes() + score.mistakes("later"), ids=lambda mistake: mistake.name)
def test_each_suggestion_works(mistake: score.Mistake, steady_model_dir: Path) -> None:
    with score.as_a_user(steady_model_dir) as home:
        _lacks, said = score.judge(mistake, home, 0)
        assert list(suggestions.failures(mistake, home / "0", said)) == []
