"""Tools that are functions of a user's Python file, and environments written for TRL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PrivateAttr, model_validator

from fgrl.base import lazy
from fgrl.base.errors import UserCodeError
from fgrl.kinds import Environment, Episode
from fgrl.kinds.environment import FAILURES
from fgrl.kinds.functions import FactoryFile, FunctionFile, as_user_error, key_of
from fgrl.kinds.functions.file import load
from fgrl.kinds.functions.reporting import report
from fgrl.kinds.functions.signatures import Function
from fgrl.registry import File, register
from fgrl.rollouts.calls import tool_calls
from fgrl.types import Message, Sample

if TYPE_CHECKING:
    import asyncio

    from transformers.utils import chat_template_utils
else:
    asyncio = lazy.load("asyncio")
    chat_template_utils = lazy.load("transformers.utils.chat_template_utils")

Tools = Mapping[str, Callable[..., Any]]


class ToolEpisode(Episode):
    """A conversation in which the policy calls tools. It ends with the first turn without a call."""

    role = "tool"

    def __init__(self, environment: Functions, callables: Tools, made: Any, prompt: Sequence[Message] | str) -> None:
        self.environment, self.callables, self.made, self.prompt = environment, callables, made, prompt
        self.tools = environment._schemas

    @property
    def special(self) -> bool:  # type: ignore[override]
        """Return True if the tokenizer itself defines the format of tool calls."""
        return bool(getattr(self.tokenizer, "response_template", None))

    def step(self, text: str) -> Any:
        error_reward = self.environment.error_reward
        try:
            calls = tool_calls(self.tokenizer, text, self.tools)
        except (ValueError, LookupError) as error:
            return f"Error: {error}", error_reward, False, False, {"error": f"unreadable call: {error}"}
        if not calls:
            return "", self.limited(), True, False, {"calls": 0}
        said, failed = [], []
        for name, arguments in calls:
            try:
                if name not in self.callables:
                    raise LookupError(f"there is no tool {name!r}; the tools are {', '.join(self.callables)}")
                said.append(_text(_result(self.callables[name](**arguments))))
            except FAILURES:
                raise
            except (Exception, SystemExit) as error:
                problem = str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)
                said.append(f"Error: {problem or type(error).__name__}")
                failed.append(f"{name}: {type(error).__name__}: {problem}")
        about: dict[str, Any] = {"calls": len(calls)} | ({"error": "; ".join(failed)} if failed else {})
        return "\n".join(said), error_reward if failed else 0.0, False, False, about

    def limited(self) -> float:
        """Return the value of TRL's `get_reward()`, which is called once, at the end; 0 without this method."""
        return float(_result(self.made.get_reward())) if hasattr(self.made, "get_reward") else 0.0


@register("functions")
class Functions(Environment):
    """Tools in TRL's form: Python functions with type hints and docstrings (`tools`), or the public methods of a class
    (`factory`, TRL's `environment_factory`) with `reset(**columns)` and `get_reward()`.

    A turn without a call is the answer, and ends the conversation. An unreadable call, an unknown tool, wrong arguments
    and exceptions in a tool are answered with a message and `error_reward`.
    """

    tools: list[Annotated[str, FunctionFile]] = []
    """Functions: `tools.py:lookup`, relative to the recipe."""
    factory: Annotated[str | None, FactoryFile] = None
    """Class such as `env.py:WordEnv`, of which each conversation has its own object. The return value of `reset` is
    added to the prompt. The value of `get_reward` is the reward of the last turn.
    """
    files: list[Annotated[str, File]] = []
    """Files that the tools read. Their content is part of the cache key."""

    _functions: list[Function] = PrivateAttr(default_factory=list)
    _factory: Function | None = PrivateAttr(None)
    _schemas: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _some(self) -> Functions:
        if not self.tools and self.factory is None:
            raise ValueError("name functions under `tools`, or a class under `factory`")
        return self

    def behind(self) -> list[str]:
        return key_of([*self.tools, *([] if self.factory is None else [self.factory])])

    def setup(self, run: Any) -> None:
        super().setup(run)
        functions = load(self.tools, [] if self.factory is None else [self.factory])
        self._functions = functions[: len(self.tools)]
        self._factory = functions[-1] if self.factory is not None else None
        tools = self._callables(self._made())
        self._schemas = [self._schema(tool) for tool in tools.values()]

    def _made(self) -> Any:
        """Return a new object of the factory; None without a factory."""
        return None if self._factory is None else self._called(self._factory, self._factory.call)

    def _called(self, function: Function, call: Callable[..., Any], **arguments: Any) -> Any:
        try:
            return _result(call(**arguments))
        except FAILURES:
            raise
        except Exception as error:
            user = as_user_error(error, called=call.__qualname__, at=(function.file, function.line))
            if user is None:
                raise
            raise user from error

    def _callables(self, made: Any) -> dict[str, Callable[..., Any]]:
        """Return the tools by name. Raise `UserCodeError` if two have the same name."""
        methods = [
            getattr(made, name)
            for name, _function in inspect.getmembers(type(made), inspect.isfunction)
            if made is not None and not name.startswith("_") and name not in ("reset", "get_reward")
        ]
        found = [*(function.call for function in self._functions), *methods]
        tools = {tool.__name__: tool for tool in found}
        if len(tools) < len(found) or not tools or (made is not None and not hasattr(made, "reset")):
            names = ", ".join(tool.__name__ for tool in found) or "none"
            raise UserCodeError(
                f"{self.factory or self.tools}: wants tools with different names, and a class with `reset`; the tools are: {names}"
            )
        return tools

    def _schema(self, tool: Callable[..., Any]) -> dict[str, Any]:
        try:
            described: dict[str, Any] = chat_template_utils.get_json_schema(tool)
        except Exception as error:
            code = inspect.unwrap(tool).__code__
            what = f"the tool {tool.__qualname__} cannot be described: {error}"
            step = "a tool has a docstring, with a line for each argument under `Args:`, and type hints"
            raise UserCodeError(report(code.co_filename, code.co_firstlineno, what, step)) from None
        return described

    def begin(self, sample: Sample, seed: int) -> Episode:
        turns = sample.prompt if isinstance(sample.prompt, list) else [Message(role="user", content=sample.prompt)]
        made = self._made()
        if made is not None:
            assert self._factory is not None
            row = {"seed": seed, "id": sample.id, "reference": sample.reference, **sample.meta}
            row["prompt"] = [turn.model_dump() for turn in turns]
            taken = inspect.signature(made.reset).parameters
            collects = any(each.kind is each.VAR_KEYWORD for each in taken.values())
            known = {name: value for name, value in row.items() if collects or name in taken}
            added = self._called(self._factory, made.reset, **known)
            if added is not None:
                last = turns[-1]
                turns = [*turns[:-1], last.model_copy(update={"content": last.content + _text(added)})]
        plain = isinstance(sample.prompt, str) and len(turns) == 1
        return ToolEpisode(self, self._callables(made), made, turns[0].content if plain else turns)


def _result(value: Any) -> Any:
    """Return the result of a user's function. If the function is asynchronous, wait for its result."""
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _text(value: Any) -> str:
    """Return an answer as text. Raise ValueError for an answer with images."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "type" in part for part in value):
        if any(part["type"] != "text" for part in value):
            raise ValueError("only texts can be read, not images")
        return "".join(str(part["text"]) for part in value)
    return str(value)
