"""What the page on data sets tells people to write can be built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fgrl.data.rubrics.rubric_set import RubricSet
from fgrl.kinds import Reader
from fgrl.registry import Context, build

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "data-sets.md").read_text(encoding="utf-8")
FRAGMENTS = re.findall(r"(?:^  |`)(\{name: (?!yes_no).*?\})(?:`|$)", PAGE, re.MULTILINE)


def test_the_page_has_a_fragment_for_every_set() -> None:
    names = {yaml.safe_load(fragment)["name"] for fragment in FRAGMENTS}
    assert names == {
        "ms_marco",
        "trivia_qa",
        "truthful_qa",
        "climate_fever",
        "pubhealth",
        "hsd",
        "sbic",
        "claims",
        "questions",
        "hir",
        "verinstruct",
        "muldimif",
        "ifeval",
        "ifbench",
        "if_train",
        "advanced_if",
    }
    assert len(FRAGMENTS) == 21


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_a_fragment_can_be_built(fragment: str, tmp_path: Path) -> None:
    node = yaml.safe_load(fragment)
    for file in node.get("files", []):
        (tmp_path / file).touch()
    reader = build(
        Reader, node, context=Context(folder=lambda path: ROOT / "recipes" if path[-1] == "prompt" else tmp_path)
    )
    if not isinstance(reader, RubricSet):
        roles = [role for role, _text in reader._read_prompt().turns]
        assert roles[-1] == "user"
        assert roles[:-1] in ([], ["system"])
