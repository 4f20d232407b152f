"""`fgrl chat`: conversation with one model in the terminal, or with two side by side."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgrl.base import errors, lazy
from fgrl.base.errors import DataError, UsageError
from fgrl.commands.shared import RUNS, RunsFolder, WrongWord, at_terminal, echo, named_and_overrides, overrides

if TYPE_CHECKING:
    from fgrl.exchange.publishing.conversation import Conversation, Reply
    from fgrl.experiments.pipeline.run import Run
    from fgrl.pages.report.marked_tokens import MarkedTokens
console = lazy.load("fgrl.base.console")
conversations = lazy.load("fgrl.exchange.publishing.conversation")
libraries = lazy.load("fgrl.experiments.pipeline.libraries")
marked_tokens = lazy.load("fgrl.pages.report.marked_tokens")
named_rewards = lazy.load("fgrl.library.named_rewards")
recipes = lazy.load("fgrl.experiments.recipe")
specs = lazy.load("fgrl.kinds.specs")
stage_run = lazy.load("fgrl.experiments.pipeline.run")
terminal = lazy.load("fgrl.pages.report.terminal")
word_meanings = lazy.load("fgrl.library.words")

EXAMPLES = """
\b
Examples:
  fgrl chat recipes/quickstart.yaml                               the final trained policy of what has run
  fgrl chat recipes/quickstart.yaml smollm2-135m-instruct         the policy beside its base
  fgrl chat R --reward R                                          tokens coloured by the reward that the policy was trained with
  fgrl chat my-policy --temperature 0 --max-tokens 100            an exported folder; hub ids work too
  echo "Why do birds sing?" | fgrl chat my-policy                 one line in, one answer out

\b
In the chat: /reset forgets the conversation, /system TEXT sets the system turn, /help, /quit. Ctrl-C stops an answer, and ends the
chat at the prompt. Overrides of a recipe may follow the models.
"""
HELP = "/reset forgets the conversation, /system TEXT sets the system turn (/system alone removes it), /quit ends"


def chat(
    context: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL [OTHER]", help="A recipe, run or stage, as for `fgrl export`; or a model's folder, hub id or packaged name.",
            show_default=False,
        ),
    ],
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="Text of the system turn.")] = None,
    temperature: Annotated[float, typer.Option("--temperature", min=0, metavar="T", help="Sampling temperature; 0 is greedy decoding.")] = 0.7,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, metavar="N", help="Maximum number of tokens of an answer.")] = 256,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="K", help="Random seed: the same seed and words give the same answers.")] = 0,
    reward: Annotated[
        str | None, typer.Option("--reward", metavar="STAGE|COMPONENT", help="Colour the answers' tokens by this reward.")
    ] = None,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"] | None, typer.Option("--dtype", help="Type of the weights.", show_default=False)
    ] = None,
    runs: RunsFolder = RUNS,
) -> None:  # fmt: skip
    """Chat with a trained model in the terminal, or with two side by side; --reward colours tokens by a reward."""
    words, extra = named_and_overrides([*models, *context.args])
    if len(words) not in (1, 2):
        raise WrongWord("wants one model, or two to compare", param_hint="MODEL")
    changes = overrides(extra, context)
    wide = at_terminal()
    recipes.know_components()
    try:
        scorer, products = (None, {}) if reward is None else named_rewards.reward(reward, runs, changes)
        progress = console.Console()
        with (
            libraries.diverted(Path(os.devnull), verbose=False),
            stage_run.scratch_run("chat", cache=runs / "cache", seed=seed, products=products, console=progress) as run,
        ):
            run.cache.mkdir(parents=True, exist_ok=True)
            talks = []
            for word, name in zip(words, _titles(words), strict=True):
                model = _load(run, word, runs, changes, dtype)
                talks.append(conversations.Conversation(name, model, temperature, max_tokens, seed, system))
            if scorer is not None:
                scorer.setup(run)
            _Chat(talks, scorer, wide).hold()
    except KeyboardInterrupt:  # while something was loaded, or in the middle of a script
        raise typer.Exit(errors.INTERRUPTED) from None


def _titles(words: Sequence[str]) -> list[str]:
    """Return short and distinct names of the models."""
    short = [word.rstrip("/").rpartition("/")[2] for word in words]
    return list(words) if len(set(short)) < len(short) else short


def _load(run: Run, word: str, runs: Path, changes: Sequence[str], dtype: str | None) -> Any:
    named = word_meanings.names_a_stage(word, runs)
    base = str(word_meanings.model(word, runs, changes).model) if named else word
    try:
        spec = specs.ModelSpec(base=base, **({} if dtype is None else {"dtype": dtype}))
    except ValueError as error:  # pydantic's
        reason = error.errors()[0]["msg"].removeprefix("Value error, ") if hasattr(error, "errors") else str(error)
        raise WrongWord(f"{word}: {reason}", param_hint="MODEL") from None
    try:
        return run.model(spec)
    except DataError as error:
        if "no next-token" in str(error):
            raise UsageError(
                f"{word} is a reward model, which cannot generate text: use it with --reward {word}"
            ) from None
        raise


class _Chat:
    """Reads questions and prints answers until the input ends."""

    def __init__(self, talks: Sequence[Conversation], reward: Any, wide: bool) -> None:
        self.talks, self.reward, self.wide = talks, reward, wide
        """wide: True at a terminal; otherwise each answer is printed as plain lines."""

    def hold(self) -> None:
        if self.wide:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (editing and history of lines)
            echo(f"{' and '.join(talk.name for talk in self.talks)}: {HELP}", err=True)
            for talk in self.talks:
                if not talk.remembers:
                    echo(
                        f"{talk.name} has no chat template: each text is continued as it is, without the turns before",
                        err=True,
                    )
        while (line := self._read()) is not None:
            if not line.strip():
                continue
            if line.startswith("/") and not line.startswith("//"):
                if not self._command(line):
                    return
                continue
            try:
                self._answer(line.removeprefix("/") if line.startswith("//") else line)
            except DataError as error:
                if not self.wide:
                    raise
                echo(error.at_terminal(), err=True)

    def _read(self) -> str | None:
        """Return a line of user input; None at the end of the input."""
        if not self.wide:
            try:
                line = sys.stdin.readline()
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"what is piped in is not UTF-8 ({error.reason} at byte {error.start}): convert it"
                ) from None
            return line.rstrip("\r\n") if line else None
        try:
            return input("> ")
        except UnicodeDecodeError:
            echo("that line is not UTF-8", err=True)
            return ""
        except (EOFError, KeyboardInterrupt):
            echo("")
            return None

    def _command(self, line: str) -> bool:
        """Carry out a line that begins with a slash. Return False to end the chat."""
        name, _, rest = line[1:].partition(" ")
        if name in ("quit", "exit", "q"):
            return False
        if name == "reset":
            for talk in self.talks:
                talk.reset()
            echo("the conversation is forgotten", err=True)
        elif name == "system":
            for talk in self.talks:
                talk.system = rest.strip() or None
            echo("the system turn is set" if rest.strip() else "the system turn is removed", err=True)
        else:
            known = "" if name == "help" else f"no such command: /{name}; "
            echo(f"{known}{HELP}; write two slashes where a question begins with one", err=True)
        return True

    def _answer(self, question: str) -> None:
        live = self.wide and len(self.talks) == 1 and self.reward is None
        prompts = [talk.prompt(question) for talk in self.talks]
        replies: list[Reply] = []
        for talk in self.talks:
            replies.append(talk.ask(question, (lambda text: echo(text, end="")) if live else (lambda _text: None)))
            if replies[-1].stopped:
                break
        stopped = replies[-1].stopped
        if live:
            echo("")
        else:
            terminal.print_answers(
                [self._shown(talk, prompt, reply) for talk, prompt, reply in zip(self.talks, prompts, replies, strict=False)],
                plain_lines=not self.wide,
            )  # fmt: skip
        for talk, reply in zip(self.talks, replies, strict=False):
            self._remarks(talk, reply)
        if stopped and not self.wide:
            raise KeyboardInterrupt

    def _shown(self, talk: Conversation, prompt: Any, reply: Reply) -> MarkedTokens:
        if self.reward is None or not len(reply.drawn):
            return marked_tokens.MarkedTokens(talk.name, [reply.text], ["response"])
        other = next((each.model for each in self.talks if each is not talk), None)
        reference = None if talk.model.adapted else other
        scored: MarkedTokens = conversations.rewarded(self.reward, talk.model, reference, prompt, reply, talk.name)
        return scored

    def _remarks(self, talk: Conversation, reply: Reply) -> None:
        remarks = []
        if reply.stopped:
            remarks.append("stopped")
        elif reply.drawn.finish != "end":
            remarks.append(f"cut after {len(reply.drawn)} tokens (--max-tokens)")
        if lost := reply.drawn.prompt.lost:
            remarks.append(f"the first {lost} tokens of the conversation were left out (/reset starts a new one)")
        if remarks:
            echo(f"({talk.name}: {'; '.join(remarks)})", err=True)
