"""`fgrl` exports what is public and nothing else; components need no other import of it, also those that 0.1 wrote."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Template

import pytest
from scratch_registry import scratch

import fgrl

ROOT = Path(__file__).resolve().parents[2]
OLD = Path(__file__).parent / "components_of_0_1"
"""What `fgrl new` of 0.1 wrote."""
NEW_IMPORT = re.compile(r"^from fgrl(\.\w+)+ import ", re.MULTILINE)
"""What CHANGELOG.md says: `from fgrl.MODULE import NAME` becomes `from fgrl import NAME`."""
RECIPE = """
about: "Components that 0.1 wrote."
imports: [my_segmenter.py, my_reward.py, my_online_algorithm.py]
vars: {{base: {base}}}
stages:
  reward_model:
    name: finetune
    data: {{name: jsonl, path: pairs.jsonl, format: preference}}
    model: {{base: "${{vars.base}}", head: scalar}}
    algorithm: {{name: bradley_terry, segmenter: {{name: my_segmenter, every: 2}}}}
    train: {{lr: 1e-3, epochs: 1, batch_size: 2, accelerator: cpu}}
    max_prompt_tokens: 16
    max_tokens: 32
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: "${{vars.base}}", lora: {{r: 2, alpha: 4}}}}
    reward: {{name: my_reward, word: e}}
    algorithm: my_online_algorithm
    rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 6}}}}
    train: {{lr: 1e-2, iterations: 1, batch_size: 4, accelerator: cpu}}
"""


def test_dir_lists_what_is_public() -> None:
    assert dir(fgrl) == sorted(set(fgrl.__all__))
    assert len(fgrl.__all__) == len(set(fgrl.__all__))
    assert [name for name in dir(fgrl) if name.startswith("_")] == ["__version__"]
    assert {"Any", "importlib", "annotations", "TYPE_CHECKING"}.isdisjoint(dir(fgrl))
    for name in dir(fgrl):
        assert getattr(fgrl, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Rewardd'"):
        _ = fgrl.Rewardd


@pytest.mark.parametrize("module", [fgrl.kinds, fgrl.types], ids=["kinds", "types"])
def test_everything_of_the_kinds_and_the_records_is_exported(module: object) -> None:
    public = {
        name for name, value in vars(module).items() if not name.startswith("_") and not hasattr(value, "__path__")
    }
    public = {name for name in public if getattr(getattr(module, name), "__spec__", None) is None}
    assert public - {"annotations"} <= set(dir(fgrl))
    assert all(getattr(fgrl, name) is getattr(module, name) for name in public & set(dir(fgrl)))


@pytest.mark.parametrize("folder", ["examples", "fgrl/library/templates"])
def test_files_of_authors_import_from_fgrl_alone(folder: str) -> None:
    files = [file for ending in ("*.py", "*.txt") for file in (ROOT / folder).rglob(ending)]
    assert len(files) > 10
    for file in files:
        text = Template(file.read_text(encoding="utf-8")).safe_substitute(cls="C", module="m", name="n")
        for part in text.split("%%% test\n"):
            for node in ast.walk(ast.parse(part)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fgrl":
                    assert node.module == "fgrl", f"{file.name}: {ast.unparse(node)}"
                    assert {alias.name for alias in node.names} <= set(dir(fgrl))


def test_components_that_0_1_wrote_train_after_a_change_of_their_imports(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in OLD.glob("*.txt"):
        code = Template(file.read_text(encoding="utf-8")).substitute(name=f"my_{file.stem}", cls=file.stem.title())
        assert NEW_IMPORT.search(code)
        Path(f"my_{file.stem}.py").write_text(NEW_IMPORT.sub("from fgrl import ", code), encoding="utf-8")
    Path("topics.txt").write_text("the sea\na lamp\n")
    Path("pairs.jsonl").write_text(
        '{"prompt": "Why?", "chosen": "It is wide and deep.", "rejected": "No."}\n' * 2, encoding="utf-8"
    )
    Path("recipe.yaml").write_text(RECIPE.format(base=tiny_model_dir))
    with scratch():
        run = fgrl.run("recipe.yaml", progress=False, page=False)
    assert [stage.state for stage in run.stages.values()] == ["done", "done"]
    assert "share with the word" in " ".join(run.stage("policy").log().columns)
