"""The pages for people who come from TRL and verl: both halves of their examples run."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from doc_blocks import Block, blocks

from fgrl.experiments import recipe as recipes

FUNCTION = (
    "def score(completions, **columns):\n    return [float(text.strip().endswith('?')) for text in completions]\n"
)


def of_page(page: str, *languages: str) -> list[Block]:
    return [block for block in blocks(*languages) if block.page == page]


@pytest.fixture
def _in_folder(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(tiny_model_dir)
    rows = [{"prompt": f"Why do birds sing {number}", "answer": "a"} for number in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.usefixtures("_in_folder")
@pytest.mark.parametrize("page", ["docs/how-to/from-trl.md", "docs/how-to/from-verl.md"])
def test_our_half_is_a_recipe(page: str, tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(FUNCTION)
    (block,) = of_page(page, "yaml")
    (tmp_path / "recipe.yaml").write_text(block.text)
    recipe = recipes.load(tmp_path / "recipe.yaml")
    assert list(recipe.stages) == ["policy"]


@pytest.mark.docs
@pytest.mark.usefixtures("_in_folder")
def test_the_half_of_trl_trains() -> None:
    """As the page has it, for one step."""
    (block,) = of_page("docs/how-to/from-trl.md", "python")
    changed = block.text.replace("max_steps=20", "max_steps=1").replace(
        "\n)\ntrainer = ", "\n    use_cpu=True,\n    report_to=[],\n)\ntrainer = "
    )
    assert changed.count("max_steps=1,") == changed.count("use_cpu") == 1
    space: dict[str, object] = {"__name__": "train"}
    exec(compile(changed, str(block), "exec"), space)
    assert space["trainer"].state.global_step == 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_in_folder")
def test_rows_and_rewards_of_verl(tmp_path: Path) -> None:
    functions, rows = of_page("docs/how-to/from-verl.md", "python")
    space: dict[str, object] = {}
    exec(compile(functions.text, str(functions), "exec"), space)
    data = [
        {
            "data_source": "x",
            "prompt": [{"role": "user", "content": "?"}],
            "reward_model": {"style": "rule", "ground_truth": each},
        }
        for each in ("4", "5")
    ]
    pd.DataFrame(data).to_parquet(tmp_path / "rows.parquet")
    exec(compile(rows.text, str(rows), "exec"), {})
    converted = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert converted == [{"prompt": data[0]["prompt"], "answer": "4"}, {"prompt": data[1]["prompt"], "answer": "5"}]
    texts, truths = ["2 + 2 is 4", "it is 4"], [row["answer"] for row in converted]
    theirs = [space["compute_score"]("x", text, truth) for text, truth in zip(texts, truths, strict=True)]  # type: ignore[operator]
    assert theirs == space["score"](texts, answer=truths) == [1.0, 0.0]  # type: ignore[operator]
