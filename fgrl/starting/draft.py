"""A first recipe for a user's rows and model: detected columns, measured lengths, sizes that fit them, and the text.

1. read the rows, 2. detect the columns, 3. convert every row with the reader that the recipe will name, 4. count tokens,
5. choose sizes, 6. write the recipe with its assumptions as comments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fgrl import files, lazy, registry
from fgrl.errors import DataError, UsageError
from fgrl.functions import signatures
from fgrl.registry import alternatives, did_you_mean, names_folder
from fgrl.specs import MODEL_FILES, ModelSpec
from fgrl.starting import measuring, rewarded, texts, workflows
from fgrl.starting.columns import Kind, detect
from fgrl.starting.measuring import Measured
from fgrl.starting.rows import Table, beside, read_table
from fgrl.types import Sample

torch = lazy.load("torch")

STUB = "rewards.py"
FEWEST = 8
"""Rows below which nothing can be held out."""


@dataclass(frozen=True)
class Request:
    """Arguments of `fgrl init`."""

    kind: Kind
    data: Path
    model: str
    output: Path
    """The recipe's file."""
    reward: str | None = None
    """`FILE.py:FUNCTION`, for `ppo` and `grpo`."""
    system: str | None = None
    chat_template: Path | None = None
    gpu: bool | None = None
    """True if the recipe is for a GPU; None: if this machine has one."""
    max_prompt_tokens: int | None = None
    """The limit of prompts; None: chosen by the lengths that were counted."""
    max_tokens: int | None = None
    """The limit of prompt and answer together, where the rows have answers; None: chosen."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by role that need no guess."""


@dataclass
class Draft:
    """A recipe that is not written yet."""

    text: str
    assumptions: list[str]
    """Findings and assumptions, one sentence each."""
    files: dict[Path, str] = field(default_factory=dict)
    """Other files to write, and their texts."""
    prompts: list[str] = field(default_factory=list)
    """Prompt files of fgrl that the recipe reads beside it."""


def draft(request: Request) -> Draft:
    """Return the recipe for a request; nothing is written. Raises `UsageError` for what was asked for wrongly,
    `DataError` for rows that do not fit.
    """
    # 1.
    table = read_table(request.data)
    folder = request.output.parent
    model = _model(request, folder)
    reward, stub = _reward(request, table) if request.kind in ("ppo", "grpo") else (None, {})
    # 2.
    found = detect(request.kind, table.rows, str(request.data), request.columns)
    # 3.
    system = {"system": request.system} if request.system else {}
    columns = {"columns": found.columns} if found.columns else {}
    shape = {"format": found.form, **columns, **system, "shuffle_seed": 0}
    rows, omitted = measuring.read_all(table.reader | shape, found.form)
    # 4.
    measured = measuring.measure(rows, len(table.rows), omitted, _spec(request))
    if measured.template is None and (
        request.max_prompt_tokens is None or (measured.answers and request.max_tokens is None)
    ):
        needed = "--max-prompt-tokens N" + (" and --max-tokens N (prompt and answer)" if measured.answers else "")
        raise UsageError(
            f"--model {request.model}: its tokenizer is not on this machine and cannot be loaded, so the tokens of the prompts cannot "
            f"be counted, and limits that are too low would cut them. Download the model first, or set limits yourself: {needed}"
        )
    if measured.count < FEWEST:
        raise DataError(f"{request.data}: {measured.count} rows fit, and at least {FEWEST} are needed to hold some out")
    # 5.
    gpu = torch.cuda.is_available() if request.gpu is None else request.gpu
    sizes, offline = _sizes(request, measured, gpu)
    # 6.
    reader = table.reader_beside(folder) | shape | ({"bad_rows": "drop"} if measured.bad else {})
    assumptions = [*found.assumptions, *_about(request, measured, sizes, gpu)]
    if stub:
        assumptions.append(f"the reward in {STUB} is a placeholder: replace its function by your own")
    name = request.data.name
    score = (
        rewarded.tried(_checked(request.reward), [row for row in rows if isinstance(row, Sample)])
        if request.reward
        else None
    )
    by_token = score is not None and score.by_token
    if score is not None:
        assumptions.append(score.text)
    if by_token and request.kind == "grpo":
        assumptions.append(
            f"{reward} scores tokens or spans, and grpo trains on their sum alone: the algorithm is rtt_grpo, which adds token rewards "
            "to the advantage of grpo (`fgrl init ppo` trains on token rewards alone)"
        )
    if by_token:
        own = request.output
        assumptions.append(
            f"the row scalar is the same training with one number per answer: `fgrl compare {own}::scalar {own} --run` runs and compares both"
        )
    judged = request.kind == "rtt" and any(
        criterion.check is None for row in rows if isinstance(row, Sample) for criterion in row.rubric
    )
    teacher = request.kind == "critic" and not _marked(rows)
    if request.kind == "chains" and not _marked(rows, below=0):
        raise DataError(f"{request.data}: no answer has a marked passage with a label below 0, which a chain addresses")
    if judged or teacher:
        assumptions.append(
            f"{'criteria without a check need a judge' if judged else 'nothing is marked in the rows'}: vars.teacher is a language model "
            "that is asked; set its name, and its key in the environment"
        )
    facts = texts.Facts(
        request.kind, name, reader, found.reference, model, reward, sizes, measured, assumptions, by_token, offline, judged, teacher,
    )  # fmt: skip
    body = (texts.BODIES | workflows.BODIES)[request.kind]
    return Draft(
        texts.recipe(facts, body),
        assumptions,
        {folder / name: text for name, text in stub.items()},
        workflows.prompts(facts),
    )


def _sizes(request: Request, measured: Measured, gpu: bool) -> tuple[texts.Sizes, texts.Sizes | None]:
    """Return the sizes of the training, and those of the one on fixed data before it."""
    limits = request.max_prompt_tokens, request.max_tokens
    if request.kind not in ("segment_ppo", "rtt", "critic"):
        return texts.choose(request.kind, measured, gpu, *limits), None
    online = texts.choose(request.kind, replace(measured, answers=None), gpu, limits[0])
    if request.kind == "segment_ppo":
        return online, texts.choose(request.kind, measured, gpu, *limits)
    seen = workflows.seen_tokens(request.kind, online)
    return online, replace(online, batch=32 if gpu else 8, epochs=1 if request.kind == "rtt" else 2, max_tokens=seen)


def _marked(rows: Sequence[Any], below: float = float("inf")) -> bool:
    """Return True if a response has a marked passage with a label below a number."""
    return any(span.label < below for row in rows for response in row.responses for span in response.spans)


def _model(request: Request, folder: Path) -> dict[str, str]:
    """Return the model's settings as the recipe has them: a folder relative to the recipe, anything else as it is."""
    given, name = files.expanded(request.model), request.model
    if files.is_folder(given):
        if not any((given / file).is_file() for file in MODEL_FILES):
            raise UsageError(f"--model {name}: the folder contains no model: none of {', '.join(MODEL_FILES)}")
        near = beside(given, folder)
        name = near if names_folder(near) else f"./{near}"
    elif names_folder(name):
        raise UsageError(f"--model {name}: no such folder{did_you_mean(given.name, files.names_in(given.parent))}")
    template = {}
    if request.chat_template is not None:
        if not files.is_file(request.chat_template):
            raise UsageError(f"--chat-template {request.chat_template}: no such file")
        template = {"chat_template": beside(request.chat_template, folder)}
    return {"base": name, **template}


def _spec(request: Request) -> ModelSpec:
    given = files.expanded(request.model)
    template = None if request.chat_template is None else str(request.chat_template.resolve())
    return ModelSpec(base=str(given.resolve()) if files.is_folder(given) else request.model, chat_template=template)


def _reward(request: Request, table: Table) -> tuple[str, dict[str, str]]:
    """Return the reward function as the recipe names it, and the file to write when none was named."""
    folder = request.output.parent
    if request.reward is None:
        if files.exists(folder / STUB):
            raise UsageError(
                f"{folder / STUB} is already there: name its function, as in --reward {STUB}:{_example(folder / STUB)}"
            )
        return f"{STUB}:score", {STUB: texts.stub([name for name in table.rows[0] if name.isidentifier()])}
    name, colon, function = request.reward.rpartition(":")
    path = Path(name)
    if not colon or not function.isidentifier() or path.suffix != ".py":
        raise UsageError(f"--reward {request.reward}: wants FILE.py:FUNCTION, as in rewards.py:score")
    if not files.is_file(path):
        raise UsageError(
            f"--reward {request.reward}: no such file{did_you_mean(path.name, files.names_in(path.parent))}"
        )
    known = _functions(path)
    if function not in known:
        raise UsageError(
            f"--reward {request.reward}: {path} defines no function {function}; {alternatives(function, known)}"
        )
    return f"{beside(path, folder)}:{function}", {}


def _checked(given: str) -> str:
    """Return the whole path of a reward function that exists. Raises the problems of its annotation."""
    path, _, function = given.rpartition(":")
    whole = f"{Path(path).resolve()}:{function}"
    registry.build("reward", {"name": "function", "path": whole})
    return whole


def _functions(path: Path) -> list[str]:
    """Names that a Python file defines or imports at its top level. It is not run."""
    try:
        return signatures.names_at_top(path)
    except SyntaxError as error:
        place = f"{path}:{error.lineno}" if error.lineno else path  # a file with a null byte has no line
        raise UsageError(f"{place}: no Python: {error.msg}") from None


def _example(path: Path) -> str:
    return next(iter(_functions(path)), "FUNCTION")


def _about(request: Request, measured: Measured, sizes: Any, gpu: bool) -> list[str]:
    """Return the findings about rows, model and machine, and their consequences."""
    held_out = f"{sizes.held_out:,} of {measured.count:,} rows are held out (shuffled with seed 0) and never trained on"
    if sizes.evaluated < sizes.held_out and request.kind != "reward_model":
        held_out += f"; the evaluation answers {sizes.evaluated:,} of them (limit)"
    lines = [held_out]
    if measured.bad:
        lines.append(
            f"{measured.bad:,} rows do not fit and are left out (bad_rows: drop); the first: {measured.first_bad}"
        )
    if measured.repeated:
        lines.append(
            f"{measured.repeated:,} rows repeat the prompt of another row: held-out rows whose prompt is trained on are left out (overlap: drop)"
        )
    lines.append(f"prompts have {measured.prompts}: max_prompt_tokens {sizes.max_prompt}")
    if measured.prompts.longest > sizes.max_prompt:
        lines.append("longer prompts lose their beginning")
    if measured.answers is not None:
        limit = f"max_tokens {sizes.max_tokens} for prompt and answer together"
        lines.append(f"answers have {measured.answers}: {limit}")
    else:
        lines.append(
            f"answers are drawn with at most {sizes.new_tokens} tokens (max_new_tokens); raise it for longer answers"
        )
    words = {
        None: "the tokenizer of the model is not on this machine: lengths are estimated from the words",
        True: "the model has a chat template: a prompt that is plain text becomes the user's turn",
        False: "the model has no chat template: prompts are given to it as plain text",
    }
    lines.append(
        words[measured.template] if request.chat_template is None else f"the chat template is {request.chat_template}"
    )
    machine = "a GPU: larger batches" if gpu else "no GPU: small batches, few iterations"
    lines.append(
        f"this machine has {machine}"
        if request.gpu is None
        else f"sizes are for {'a GPU' if gpu else 'a machine without a GPU'}"
    )
    return lines
