"""`fgrl init`: a first recipe for your rows and your model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands.shared import AsJson, echo, emit

library = lazy.load("fgrl.library")

KINDS = ("sft", "dpo", "ppo", "grpo", "reward_model", "segment_ppo", "rtt", "critic", "chains", "agent")
EXAMPLES = """
\b
Examples:
  fgrl init --data rows.jsonl --model ./my-model           chooses KIND by what the rows have
  fgrl init sft --data rows.jsonl --model ./my-model
  fgrl init grpo --data prompts.csv --model ./my-model --reward rewards.py:score
  fgrl init segment_ppo --data pairs.jsonl --model ./my-model --columns chosen=good_answer,rejected=bad_answer
  fgrl init dpo --data pairs.parquet --model HuggingFaceTB/SmolLM2-135M-Instruct --out recipes/dpo.yaml
  fgrl init ppo --data prompts.jsonl --model smollm2-135m-instruct --system "Answer in one sentence."
  fgrl init sft --data trl-lib/Capybara --model ./my-model
  fgrl init agent --data questions.jsonl --model ./my-model --tools tools.py:lookup,calculate --reward rewards.py:score

\b
sft           rows with a prompt and an answer, or conversations
dpo           rows with a prompt, a preferred and a rejected answer
reward_model  the same
segment_ppo   the same: a reward model of segments, then PPO
ppo, grpo     rows with a prompt; other columns are arguments of the reward function
rtt           rows with a prompt and a list of demands on the answer: a discriminator of relevant tokens, then RTT-GRPO
critic        rows with a prompt, and marked answers if you have some: a model that marks passages, then PPO
chains        rows with a prompt, an answer and marked passages: chains of rewrites, then SFT and DPO
agent         rows with a prompt: conversations in which the model calls the functions of --tools

The recipe lists what was assumed about columns, lengths and sizes. Rows are JSON lines, JSON, CSV or parquet, or a data set of the hub.
Without --reward, ppo, grpo and agent get rewards.py with a placeholder reward and a placeholder goal. The model draws eight answers, whose
lengths decide how long answers may be; with --max-new-tokens it draws none.
"""


def init(
    data: Annotated[Path, typer.Option("--data", metavar="FILE", help="File of rows, or a hub id (owner/name).", show_default=False)],
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="A folder, a hub id, or a packaged model.", show_default=False)],
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=f"Kind of training: {', '.join(KINDS)}; by default it follows from what the rows say about good answers.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--out", "--output", "-o", metavar="FILE", help="Recipe to write.")] = Path("recipe.yaml"),
    reward: Annotated[
        str | None, typer.Option("--reward", metavar="FILE.py:FUNCTION", help="Reward function of ppo, grpo and agent.")
    ] = None,
    tools: Annotated[
        str | None, typer.Option("--tools", metavar="FILE.py:FUNCTION,...", help="Functions that the model of an agent may call.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="ROLE=COLUMN,...", help="Columns that are not to be guessed, as in prompt=question,chosen=good_answer."),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System prompt for prompts without one.")] = None,
    chat_template: Annotated[
        Path | None, typer.Option("--chat-template", metavar="FILE", help="Chat template (Jinja) for a model without one.")
    ] = None,
    gpu: Annotated[
        bool | None, typer.Option("--gpu/--no-gpu", help="Sizes for a GPU or without one; default: GPU sizes if this machine has one.")
    ] = None,
    max_prompt_tokens: Annotated[
        int | None, typer.Option("--max-prompt-tokens", metavar="N", min=1, help="Maximum number of tokens of a prompt; by default it follows from the counted tokens.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=2, help="Maximum number of tokens of prompt and answer together; by default it follows from the counted tokens.")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", metavar="N", min=1, help="Maximum number of tokens of an answer; by default it follows from eight answers that the model draws."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing recipe.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write a first recipe for your rows and your model, with its assumptions as comments."""
    made = library.init(
        kind, data, model, output, reward=reward, tools=_functions(tools), columns=_pairs(columns), system=system, chat_template=chat_template,
        gpu=gpu, max_prompt_tokens=max_prompt_tokens, max_tokens=max_tokens, max_new_tokens=max_new_tokens, force=force,
    )  # fmt: skip
    if as_json:
        emit({"files": list(map(str, made.files)), "stages": made.stages, "assumptions": made.assumptions})
        return
    for line in made.assumptions:
        echo(f"- {line}")
    for path in made.placeholders:
        echo(f"{path}: a placeholder reward and a placeholder goal; replace them by your own")
    for path in made.prompts:
        echo(f"{path}: a prompt that the recipe names; change it as you like")
    echo(f"{output}: a recipe with the stages {', '.join(made.stages)}\n")
    if made.shows_rows:
        echo(f"fgrl inspect {output}    shows rows as the model sees them")
    echo(f"fgrl plan {output}       what would run\nfgrl run {output}        runs it")


def _functions(tools: str | None) -> list[str]:
    """Return the functions of `--tools`. Functions after the first may omit the file."""
    named: list[str] = []
    for word in filter(None, (tools or "").split(",")):
        file = named[-1].rpartition(":")[0] if named and ":" not in word else ""
        named.append(f"{file}:{word.strip()}" if file else word.strip())
    if bad := [name for name in named if ":" not in name]:
        raise UsageError(f"--tools: wants FILE.py:FUNCTION,..., as in tools.py:lookup,calculate; got {bad[0]}")
    return named


def _pairs(columns: str | None) -> dict[str, str]:
    """Return the columns of `--columns` by role."""
    words = [word.partition("=") for word in (columns or "").split(",") if word]
    if bad := [role for role, _, column in words if not role or not column]:
        raise UsageError(f"--columns: wants ROLE=COLUMN, as in prompt=question; got {bad[0]}")
    return {role.strip(): column.strip() for role, _, column in words}
