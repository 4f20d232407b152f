"""A first recipe for a user's rows and model: detected columns, measured lengths, sizes that fit them, and the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.base import files, lazy
from fgrl.base.errors import DataError, UsageError
from fgrl.exchange.starting.columns import REWARDED, Kind, detect
from fgrl.exchange.starting.rows import Table, beside, read_all, read_table
from fgrl.exchange.starting.sizes import DRAWN, Counter, Lengths, drawn, prompt_limit, rounded_up, sizes
from fgrl.exchange.starting.templates import HERE, filled, flow, numbers
from fgrl.kinds.specs import MODEL_FILES, ModelSpec
from fgrl.registry import did_you_mean, names_folder

torch = lazy.load("torch")

STUB = "rewards.py"
PROMPTS = ("relevance.txt", "mark_taxonomy.txt", "judge_criterion.txt", "critic_answer.txt", "critique_answer.txt")
"""Prompt files of fgrl that a recipe may name; they are copied to the recipe's folder."""
FEWEST = 8
"""Minimum number of rows from which some are held out."""


@dataclass(frozen=True)
class Request:
    """Arguments of `fgrl init`."""

    kind: Kind
    data: Path
    model: str
    output: Path
    """Path of the recipe's file."""
    reward: str | None = None
    """Reward function as `FILE.py:FUNCTION`, for `ppo`, `grpo` and `agent`."""
    system: str | None = None
    chat_template: Path | None = None
    gpu: bool | None = None
    """True if the recipe is for a GPU; None decides by this machine."""
    max_prompt_tokens: int | None = None
    """Maximum number of tokens of a prompt; None: chosen by the lengths that were counted."""
    max_tokens: int | None = None
    """Maximum number of tokens of prompt and answer together, if the rows have answers; None: chosen."""
    max_new_tokens: int | None = None
    """Maximum number of tokens of an answer that models draw; None: chosen by the lengths of a few answers that the
    model draws.
    """
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by role that need no guess."""
    tools: Sequence[str] = ()
    """Functions of an agent, each as `FILE.py:FUNCTION`."""
    chosen: str = ""
    """Reason why the kind was chosen; empty if it was named."""


@dataclass
class Draft:
    """A recipe that is not written yet."""

    text: str
    assumptions: list[str]
    """Findings and assumptions, one sentence each."""
    files: dict[Path, str] = field(default_factory=dict)
    """Texts of other files to write, by name."""
    prompts: list[str] = field(default_factory=list)
    """Prompt files of fgrl beside the recipe that it reads."""


def draft(request: Request) -> Draft:
    """Return the recipe for a request; nothing is written. Raises `UsageError` for a wrong request, `DataError` for
    rows that do not fit.
    """
    # 1. the rows, 2. their columns
    table = read_table(request.data)
    folder, kind = request.output.parent, request.kind
    model, spec = _model(request, folder)
    function = None if request.reward is None else _built(request.reward)
    reward, stub = _reward(request, function, table) if kind in REWARDED else (None, {})
    found = detect(kind, table.rows, str(request.data), request.columns)
    # 3. the samples that the recipe's reader makes of them
    shape = {"format": found.form, "columns": found.columns, "system": request.system, "shuffle_seed": 0}
    shape = {name: value for name, value in shape.items() if value not in (None, {})}
    rows, bad, omitted = read_all(table.reader | shape, table.count)
    if len(rows) < FEWEST:
        raise DataError(f"{request.data}: {len(rows)} rows fit, and at least {FEWEST} are needed to hold some out")
    if kind == "chains" and not _marked(rows, below=0):
        raise DataError(f"{request.data}: no answer has a marked passage with a label below 0, which a chain addresses")
    if function is not None:
        function.check_prompts(rows)
    by_token = function is not None and function.on_tokens()
    # 4. their lengths, those of drawn answers, 5. the sizes that follow
    counter = Counter(spec)
    prompts, answers = counter.prompts(rows), counter.answers(rows)
    if counter.tokenizer is None and (request.max_prompt_tokens is None or (answers and request.max_tokens is None)):
        needed = "--max-prompt-tokens N" + (" and --max-tokens N (prompt and answer)" if answers else "")
        raise UsageError(
            f"--model {request.model}: its tokenizer is not on this machine and cannot be loaded, so the tokens of the prompts cannot "
            f"be counted, and limits that are too low would cut them. Download the model first, or set limits yourself: {needed}"
        )
    gpu = torch.cuda.is_available() if request.gpu is None else request.gpu
    machine = "gpu" if gpu else "no_gpu"
    max_prompt = request.max_prompt_tokens or prompt_limit(prompts)
    most, drew = max(1, min(numbers()[machine]["most_new_tokens"], counter.positions - 16)), None
    if request.max_new_tokens is None and counter.tokenizer is not None and kind != "reward_model":
        drew = drawn(spec, rows, max_prompt, most)
    learned = answers.most if answers is not None and kind in ("sft", "dpo", "chains") else 0
    longest = min(most, rounded_up(max(learned, drew[0].longest))) if drew else most
    new_tokens = request.max_new_tokens or longest
    size = sizes(
        kind, len(rows), prompts, answers, max_prompt, request.max_tokens, new_tokens, counter.positions, machine
    )
    repeated = len(rows) - len({repr(row.prompt) for row in rows})
    # 6. what is assumed, and the text
    said = [request.chosen] if request.chosen else []
    said += [*found.assumptions, *_about_rows(request, len(rows), bad, omitted, repeated, size)]
    said += _about_lengths(request, counter.tokenizer, prompts, answers, drew, size)
    here = f"this machine has {'a' if gpu else 'no'} GPU, and " if request.gpu is None else ""
    said.append(f"{here}sizes are for a machine {'with' if gpu else 'without'} a GPU")
    if stub:
        said.append(f"the reward and the goal in {STUB} are placeholders: replace both functions by your own")
    if by_token:
        said += _about_tokens(request, reward)
    if not (found.reference or stub or kind in ("rtt", "reward_model")):
        said.append('no goal is known from the rows: fill one in where the recipe says "Your goal"')
    teacher = _needs_teacher(kind, rows)
    if teacher:
        said.append(
            f"{teacher}: vars.teacher is a language model that is asked; set its name, and its key in the environment"
        )
    reader = table.reader_beside(folder) | shape | ({"bad_rows": "drop"} if bad else {})
    if found.reference:
        reader["columns"] = {**found.columns, "reference": found.reference}
    text = filled(
        kind, data=request.data.name, assumptions=said, model=model, reward=reward, by_token=by_token, stub=bool(stub),
        teacher=bool(teacher), repeated=repeated, gpu=gpu, rows=lambda **more: flow(reader | more),
        tools=[_named(tool, folder) for tool in request.tools], trained_rows=len(rows) + bad - size["held_out"], short=answers is None or answers.most <= 8,
        reference=found.reference, **size,
    )  # fmt: skip
    read = [name for name in PROMPTS if f"prompt: {name}" in text]
    return Draft(text, said, {folder / name: text for name, text in stub.items()}, read)


def _needs_teacher(kind: Kind, rows: Sequence[Any]) -> str | None:
    """Return the reason why a language model has to be asked; None if it is not needed."""
    if kind == "rtt" and any(criterion.check is None for row in rows for criterion in row.rubric):
        return "criteria without a check need a judge"
    return "nothing is marked in the rows" if kind == "critic" and not _marked(rows) else None


def _marked(rows: Sequence[Any], below: float = float("inf")) -> bool:
    """Return True if a response has a marked passage with a label below a number."""
    return any(span.label < below for row in rows for response in row.responses for span in response.spans)


def _model(request: Request, folder: Path) -> tuple[dict[str, str | None], ModelSpec]:
    """Return the model's settings for the recipe (a folder relative to the recipe, anything else unchanged), and the
    settings with absolute paths.
    """
    given, name, template = files.expanded(request.model), request.model, request.chat_template
    here = files.is_folder(given)
    if here and not any((given / file).is_file() for file in MODEL_FILES):
        raise UsageError(f"--model {name}: the folder contains no model: none of {', '.join(MODEL_FILES)}")
    if not here and names_folder(name):
        raise UsageError(f"--model {name}: no such folder{did_you_mean(given.name, files.names_in(given.parent))}")
    if template is not None and not files.is_file(template):
        raise UsageError(f"--chat-template {template}: no such file")
    whole = None if template is None else str(template.resolve())
    spec = ModelSpec(base=str(given.resolve()) if here else name, dtype="auto", chat_template=whole)
    near = beside(given, folder) if here else name
    base = near if not here or names_folder(near) else f"./{near}"
    return {"base": base, "chat_template": None if template is None else beside(template, folder)}, spec


def _reward(request: Request, function: Any, table: Table) -> tuple[str, dict[str, str]]:
    """Return the reward function as the recipe names it, and the file to write if none was named."""
    folder = request.output.parent
    if function is not None:
        return _named(function.path, folder), {}
    if files.exists(folder / STUB):
        raise UsageError(f"{folder / STUB} is already there: name its function, as in --reward {STUB}:score")
    return f"{STUB}:score", {STUB: _stub([name for name in table.rows[0] if name.isidentifier()])}


def _named(function: str, folder: Path) -> str:
    """Return a function, `FILE.py:FUNCTION`, as a recipe in this folder names it."""
    path, _, name = function.rpartition(":")
    return f"{beside(Path(path).resolve(), folder)}:{name}"


def _built(given: str) -> Any:
    """Return the reward of a function. Raises `Problems` if there is no such function."""
    path, _, function = given.rpartition(":")
    if not function.isidentifier() or not path.endswith(".py"):
        raise UsageError(f"--reward {given}: wants FILE.py:FUNCTION, as in rewards.py:score")
    settings = {"name": "function", "path": f"{Path(path).resolve()}:{function}"}
    return registry.build("reward", settings, path=("--reward",))


def _about_rows(
    request: Request, count: int, bad: int, omitted: str, repeated: int, size: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the findings about the rows, and their consequences."""
    limit = ""
    if size["evaluated"] < size["held_out"] and request.kind != "reward_model":
        limit = f"; the evaluation answers {size['evaluated']:,} of them (limit)"
    yield f"{size['held_out']:,} of {count:,} rows are held out (shuffled with seed 0) and never trained on{limit}"
    if bad:
        yield f"{bad:,} rows do not fit and are left out (bad_rows: drop); the first: {omitted}"
    if repeated:
        yield f"{repeated:,} rows repeat the prompt of another row: held-out rows whose prompt is trained on are left out (overlap: drop)"


def _about_lengths(
    request: Request, tokenizer: Any, prompts: Lengths, answers: Lengths | None, drew: tuple[Lengths, int] | None,
    size: Mapping[str, Any],
) -> Iterator[str]:  # fmt: skip
    """Yield the findings about lengths and the chat template, and their consequences."""
    cut = "; longer prompts lose their beginning" if prompts.longest > size["max_prompt"] else ""
    yield f"prompts have {prompts}: max_prompt_tokens {size['max_prompt']}{cut}"
    if answers is not None and request.kind != "critic":
        yield f"answers have {answers}: max_tokens {size['max_tokens']} for prompt and answer together"
    limit = f"max_new_tokens {size['new_tokens']}"
    if drew is not None:
        cut = f"; {drew[1]} of them were cut there" if drew[1] else ""
        yield f"{DRAWN} answers that the model drew have {drew[0]}: {limit}{cut}"
    elif request.kind != "reward_model":
        yield f"answers that models draw end after {size['new_tokens']} tokens ({limit}): none was drawn to see how long they are"
    if tokenizer is not None and request.chat_template is None:
        if tokenizer.chat_template:
            yield "the model has a chat template: a prompt that is plain text becomes the user's turn"
        else:
            yield "the model has no chat template: prompts are given to it as plain text"


def _about_tokens(request: Request, reward: str | None) -> Iterator[str]:
    """Yield the consequences of a reward function that scores tokens or spans."""
    if request.kind == "grpo":
        yield (
            f"{reward} scores tokens or spans, and grpo trains on their sum alone: the algorithm is rtt_grpo, which adds token "
            "rewards to the advantage of grpo (`fgrl init ppo` trains on token rewards alone)"
        )
    own = request.output
    yield f"the row scalar is the same training with one number per answer: `fgrl compare {own}::scalar {own} --run` runs and compares both"


def _stub(columns: Sequence[str]) -> str:
    """Return a file with a placeholder reward. columns: columns of the data, which the function may take as
    arguments.
    """
    names = ", ".join(name for name in columns if name not in ("prompt", "messages"))
    text = (HERE / "rewards.py.txt").read_text(encoding="utf-8")
    return text.replace("COLUMNS", f": {names}" if names else "")
