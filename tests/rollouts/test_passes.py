"""One-time passes: what is kept, under which name, and what a kill costs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_threads import Threads
from training_helpers import a_run, row, tiny

from fgrl import rollouts
from fgrl.kinds import Run
from fgrl.kinds.specs import ModelSpec
from fgrl.rollouts import passes
from fgrl.rollouts.rows import TokenTable


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [row(2 + i % 9, seed=i) for i in range(21)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PART", 2)


def counting(monkeypatch: pytest.MonkeyPatch, fail_at: int | None = None) -> list[int]:
    """Rows of each batch that is computed; the `fail_at`-th one falls over."""
    seen: list[int] = []
    score = rollouts.score

    def counted(model: Any, reference: Any, tokens: Any, needs: Any, **more: Any) -> Any:
        if len(seen) == fail_at:
            raise RuntimeError("killed")
        seen.append(len(tokens.mask))
        return score(model, reference, tokens, needs, **more)

    monkeypatch.setattr(passes.rollouts, "score", counted)
    return seen


def entropies(rows: Any, run: Run, base: Path) -> list[list[float]]:
    found = passes.cached_pass("entropy", "ref_entropy", rows, run, ModelSpec(base=str(base)), micro_batch_size=3)
    return [one.tolist() for one in found]


def test_values_are_those_of_each_row_alone(rows: list[dict[str, Any]], tmp_path: Path, tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    for one, values in zip(rows, entropies(rows, a_run(tmp_path), tiny_model_dir), strict=True):
        with torch.no_grad():
            logits = model.transformer(input_ids=torch.tensor([one["prompt"] + one["response"]])).logits[0]
        logp = logits[len(one["prompt"]) - 1 : -1].log_softmax(-1)
        assert values == pytest.approx((-(logp.exp() * logp).sum(-1)).tolist(), abs=1e-4)


@pytest.mark.parametrize("fail_at", [0, 1, 2, 5, 6])
def test_a_kill_costs_a_part_at_most(
    rows: list[dict[str, Any]], tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    """21 rows are 7 batches, two a part."""
    undisturbed = entropies(rows, a_run(tmp_path / "undisturbed"), tiny_model_dir)
    run = a_run(tmp_path / "killed")
    with monkeypatch.context() as patch:
        counting(patch, fail_at)
        with pytest.raises(RuntimeError, match="killed"):
            entropies(rows, run, tiny_model_dir)
    assert not list((tmp_path / "killed" / "cache").glob("*.safetensors")), "nothing unfinished has the pass's own name"
    seen = counting(monkeypatch)
    assert entropies(rows, run, tiny_model_dir) == undisturbed
    assert len(seen) == 7 - fail_at // 2 * 2
    files = [sorted((tmp_path / name / "cache").iterdir()) for name in ("undisturbed", "killed")]
    assert [file.name for file in files[0]] == [file.name for file in files[1]], "the parts are gone"
    assert files[0][0].read_bytes() == files[1][0].read_bytes()
    seen.clear()
    assert entropies(rows, run, tiny_model_dir) == undisturbed
    assert seen == []


def test_half_a_part_is_not_taken_for_a_whole_one(
    rows: list[dict[str, Any]], tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(passes, "save_file", lambda tensors, path, *metadata: Path(path).write_bytes(b"half"))
        patch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            entropies(rows, run, tiny_model_dir)
    seen = counting(monkeypatch)
    entropies(rows, run, tiny_model_dir)
    assert len(seen) == 7


def test_ctrl_c_leaves_between_parts(
    rows: list[dict[str, Any]], tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = counting(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        entropies(rows, a_run(tmp_path, interrupted=lambda: bool(seen)), tiny_model_dir)
    assert len(seen) == 2
    entropies(rows, a_run(tmp_path), tiny_model_dir)
    assert len(seen) == 7


def test_tables_and_dicts_share_a_pass(
    rows: list[dict[str, Any]], tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is that of the token ids, however they are kept."""
    run, table = a_run(tmp_path), TokenTable()
    for one in rows:
        table.add(one["prompt"], one["response"], eos_ids={2})
    before = entropies(rows, run, tiny_model_dir)
    seen = counting(monkeypatch)
    assert entropies(table, run, tiny_model_dir) == before
    assert seen == []


@pytest.mark.parametrize("damaged", [False, True])
def test_processes_share_a_pass(
    rows: list[dict[str, Any]], tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """Three processes: each has parts of its own, all have all values, and the file is that of one process."""
    spec = ModelSpec(base=str(tiny_model_dir))
    monkeypatch.setattr(passes, "PART", 1)
    rows = rows * 2  # three batches
    undisturbed = [one.tolist() for one in passes.entropies(rows, a_run(tmp_path / "alone"), spec)]
    (name,) = (file.name for file in (tmp_path / "alone" / "cache").iterdir())
    if damaged:
        (tmp_path / "together" / "cache").mkdir(parents=True)
        (tmp_path / "together" / "cache" / name).write_bytes(b"")
    threads = Threads(3)
    monkeypatch.setattr(passes.ranks, "distributed", threads)
    by: list[int] = []
    score = rollouts.score

    def noted(*arguments: Any, **more: Any) -> Any:
        by.append(threading.get_ident())
        return score(*arguments, **more)

    monkeypatch.setattr(passes.rollouts, "score", noted)
    runs = [a_run(tmp_path / "together", rank=rank) for rank in range(3)]
    for run in runs:
        run.model(spec)  # models are not loaded in several threads at a time
    found = threads.all(lambda rank: passes.entropies(rows, runs[rank], spec))
    assert all([one.tolist() for one in values] == undisturbed for values in found)
    assert [by.count(one) for one in sorted(set(by), key=by.count)] == [1, 1, 1]
    assert [file.name for file in (tmp_path / "together" / "cache").iterdir()] == [name]


def test_no_rows_are_no_work(tmp_path: Path) -> None:
    assert len(passes.cached_pass("entropy", "ref_entropy", [], a_run(tmp_path), ModelSpec(base="owner/none"))) == 0


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_pass_is_computed_again(
    rows: list[dict[str, Any]], tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    run = a_run(tmp_path)
    undisturbed = entropies(rows, run, tiny_model_dir)
    (file,) = (tmp_path / "cache").iterdir()
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes({"flipped": bytes(content), "cut": bytes(content[:-9]), "empty": b""}[damage])
    seen = counting(monkeypatch)
    assert entropies(rows, run, tiny_model_dir) == undisturbed
    assert len(seen) == 7
    assert entropies(rows, run, tiny_model_dir) == undisturbed
    assert len(seen) == 7
