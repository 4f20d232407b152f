"""Answers in the formats of AlpacaEval, Arena-Hard and MT-Bench, so that these benchmarks' own judges can be run on
them.

    alpaca_eval/<model>.json     `--model_outputs` of alpaca_eval: dataset, instruction, output, generator
    arena_hard/<model>.jsonl     `model_answer/` of arena-hard-auto: uid, ans_id, model, messages, tstamp, metadata
    mt_bench/<model>.jsonl       `model_answer/` of FastChat's llm_judge: question_id, answer_id, model_id, choices, tstamp

Not included: counts of tokens and Markdown in Arena-Hard's `metadata`, which its script `add_markdown_info.py` adds and
only its style control reads. Time stamps are 0 and identifiers are hashes, so that the same answers make the same file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fgrl.base import files
from fgrl.base.errors import DataError
from fgrl.measuring.answer import Answer, by_prompt


def write(benchmark: str, out: Path, answers: Mapping[str, Sequence[Answer]]) -> list[Path]:
    """Write `out/<benchmark>/<model>.*` for every model, finished by rename. Return the files.

    Raises `DataError` if the answers do not fit the format.
    """
    folder = out / benchmark
    folder.mkdir(exist_ok=True)
    written = []
    for model, own in answers.items():
        rows = [FORMATS[benchmark](model, group) for group in by_prompt(own).values()]
        if benchmark == "alpaca_eval":
            path = folder / f"{model}.json"
            files.write_json(path, rows, indent=2)
        else:
            path = folder / f"{model}.jsonl"
            files.write_json_lines(path, rows)
        written.append(path)
    return written


def alpaca_eval(model: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return one row. The benchmark's judge matches rows by the instruction."""
    (answer,) = _single("alpaca_eval", answers)
    if any(turn.role == "assistant" for turn in answer.chat):
        raise DataError(f"files: alpaca_eval holds single questions, and prompt {answer.id} is a conversation")
    row = {"instruction": answer.question, "output": answer.text, "generator": model}
    return ({"dataset": meta["dataset"]} if "dataset" in (meta := answer.sample.meta) else {}) | row


def arena_hard(model: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return one row. The benchmark's judge matches rows by `uid`."""
    (answer,) = _single("arena_hard", answers)
    asked = [turn.model_dump() for turn in answer.chat]
    return {
        "uid": answer.id,
        "ans_id": _identifier(model, answer.id, 0),
        "model": model,
        "messages": [*asked, {"role": "assistant", "content": {"answer": answer.text}}],
        "tstamp": 0.0,
        "metadata": {},
    }


def mt_bench(model: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return one row with a choice for each answer, its turns in order. The benchmark's judge matches rows by
    `question_id`, a whole number.
    """
    id = answers[0].id
    if not id.isdecimal():
        raise DataError(
            f"files: mt_bench identifies questions by whole numbers (81 to 160), and a prompt's id is {id!r}"
        )
    return {
        "question_id": int(id),
        "answer_id": _identifier(model, id, 0),
        "model_id": model,
        "choices": [
            {"index": index, "turns": [answer.text, *(turn.response.text for turn in answer.follow_ups)]}
            for index, answer in enumerate(answers)
        ],
        "tstamp": 0.0,
    }


FORMATS = {"alpaca_eval": alpaca_eval, "arena_hard": arena_hard, "mt_bench": mt_bench}


def _single(benchmark: str, answers: Sequence[Answer]) -> Sequence[Answer]:
    if len(answers) > 1:
        raise DataError(
            f"files: {benchmark} holds one answer per prompt: set `per_prompt: 1`, or leave it out of `files`"
        )
    if answers[0].follow_ups:
        raise DataError(f"files: {benchmark} has one turn, and prompt {answers[0].id} has follow-ups")
    return answers


def _identifier(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:22]
