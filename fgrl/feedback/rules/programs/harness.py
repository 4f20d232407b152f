"""Tests of a candidate program inside the sandbox. This module is the prelude of that sandbox. It imports nothing of
fgrl.

`record` runs the candidate and its tests in one process and writes down every call of the tests to the candidate:
arguments, result or exception. `replay` runs the same tests in a process in which the candidate never runs: each call
gets the recorded result. A candidate can change its own process (patch a builtin, forge an answer), but this does not
reach the replay, where the tests decide on data alone.
"""

from __future__ import annotations

import ast
import builtins
import collections
import collections.abc
import contextlib
import functools
import importlib
import importlib.util
import io
import itertools
import json
import math
import os
import sys
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

CANDIDATE, TESTS = "<candidate>", "<tests>"
MOST_CALLS = 20_000
INPUT_OUTPUT = ("print", "input", "open")
PRISTINE = dict(vars(builtins))
"""The builtins before the candidate runs; the tests use them."""
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial,
             type(functools.lru_cache(int)))  # fmt: skip
HEAP_TYPE = 1 << 9
"""Flag of classes that are not part of the interpreter."""
VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()))
DATES = {
    "date": ("year", "month", "day"), "timedelta": ("days", "seconds", "microseconds"),
    "datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond"),
}  # fmt: skip
FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set, bool, tuple)}


# -- plain data as JSON ---------------------------------------------------------------------------------------------------


class NotPlain(Exception):
    """A value that is not data. The argument is its type."""


def encode(value: Any) -> Any:
    """Return a value made of Python's own types as JSON. Instances of their subclasses become instances of the base
    class, without anything that they override. Raises `NotPlain`.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text.isascii() or _is_unicode(text) else {"str": text.encode("utf-8", "surrogatepass").hex()}
    if isinstance(value, int):
        number = int.__int__(value)
        return number if number.bit_length() < 1000 else {"int": hex(number)}
    if isinstance(value, float):
        real = float.__float__(value)
        return real if math.isfinite(real) else {"float": repr(real)}
    if isinstance(value, list):
        return [encode(item) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return _mapping(value)
    if isinstance(value, set):
        return {"set": sorted(map(encode, set.__iter__(value)), key=json.dumps)}
    if isinstance(value, frozenset):
        return {"frozenset": sorted(map(encode, frozenset.__iter__(value)), key=json.dumps)}
    if isinstance(value, collections.deque):
        return {"deque": [[encode(item) for item in collections.deque.__iter__(value)], value.maxlen]}
    if isinstance(value, bytes | bytearray):
        return {"bytearray" if isinstance(value, bytearray) else "bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [encode(float(value.real)), encode(float(value.imag))]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, VIEWS):
        return {"keys" if isinstance(value, VIEWS[0]) else "values": [encode(item) for item in value]}
    if _is_instance(value, "array", "array"):
        return {"array": [value.typecode, [encode(item) for item in value]]}
    for name, fields in DATES.items():
        if _is_instance(value, "datetime", name) and getattr(value, "tzinfo", None) is None:
            return {name: [getattr(value, field) for field in fields]}
    if _is_instance(value, "decimal", "Decimal"):
        return {"decimal": str(value)}
    if _is_instance(value, "fractions", "Fraction"):
        return {"fraction": [encode(int(value.numerator)), encode(int(value.denominator))]}
    raise NotPlain(type(value))


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Return True if the value has exactly this class of a module. The module counts only if the candidate or the tests
    import it.
    """
    return module in sys.modules and type(value) is getattr(sys.modules[module], name, None)


def _mapping(value: Any) -> Any:
    pairs = [[encode(key), encode(item)] for key, item in dict.items(value)]
    if isinstance(value, collections.Counter):
        return {"counter": pairs}
    if isinstance(value, collections.OrderedDict):
        return {"ordered": pairs}
    if isinstance(value, collections.defaultdict):
        factory = value.default_factory
        name = next((name for name, known in FACTORIES.items() if known is factory), None)
        if factory is not None and name is None:
            raise NotPlain(type(factory))
        return {"default": [name, pairs]}
    return {"dict": pairs}


def decode(data: Any) -> Any:
    """Return the value that `encode` encoded."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, inner),) = data.items()
    return DECODERS[kind](inner)


def _pairs(data: Any) -> list[tuple[Any, Any]]:
    return [(decode(key), decode(value)) for key, value in data]


DECODERS: dict[str, Callable[[Any], Any]] = {
    "str": lambda data: bytes.fromhex(data).decode("utf-8", "surrogatepass"),
    "int": lambda data: int(data, 16),
    "float": float,
    "tuple": lambda data: tuple(map(decode, data)),
    "set": lambda data: set(map(decode, data)),
    "frozenset": lambda data: frozenset(map(decode, data)),
    "deque": lambda data: collections.deque(map(decode, data[0]), data[1]),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda data: complex(decode(data[0]), decode(data[1])),
    "range": lambda data: range(*data),
    "keys": lambda data: dict.fromkeys(map(decode, data)).keys(),
    "values": lambda data: dict(enumerate(map(decode, data))).values(),
    "array": lambda data: importlib.import_module("array").array(data[0], map(decode, data[1])),
    "date": lambda data: importlib.import_module("datetime").date(*data),
    "timedelta": lambda data: importlib.import_module("datetime").timedelta(*data),
    "datetime": lambda data: importlib.import_module("datetime").datetime(*data),
    "decimal": lambda data: importlib.import_module("decimal").Decimal(data),
    "fraction": lambda data: importlib.import_module("fractions").Fraction(decode(data[0]), decode(data[1])),
    "dict": lambda data: dict(_pairs(data)),
    "counter": lambda data: collections.Counter(dict(_pairs(data))),
    "ordered": lambda data: collections.OrderedDict(_pairs(data)),
    "default": lambda data: collections.defaultdict(FACTORIES.get(data[0]), _pairs(data[1])),
}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def digest(data: Any) -> list[int]:
    """Return a digest that tells different arguments apart; no secret depends on it."""
    text = json.dumps(data).encode("ascii")
    return [len(text), zlib.crc32(text)]


# -- what the tests see of the candidate ----------------------------------------------------------------------------------


class Recorded:
    """The candidate's names as the tests see them: the functions record their calls."""

    def __init__(self, space: dict[str, Any]) -> None:
        self.space = space
        self.calls: list[dict[str, Any]] = []
        self.constants: dict[str, Any] = {}
        self.modules: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.given: dict[str, tuple[Any, Any]] = {}
        self._stdout = sys.stdout
        self.why_not = ""
        """Reason why the calls cannot be replayed; empty if they can."""
        self.own_classes: set[str] = set()
        """Classes of the candidate whose instances it returned."""
        self.names_classes = False
        """True if the tests name a class, or an object, of the candidate."""

    def names(self) -> list[str]:
        return [name for name in self.space if not name.startswith("__")]

    def get(self, name: str) -> Any:
        """Raise KeyError for a name that the candidate does not define."""
        value = self.space[name]
        if name in self.given and self.given[name][0] is value and name in self.functions:
            return self.given[name][1]
        shown = self._shown(name, value)
        self.given[name] = value, shown
        return shown

    def _shown(self, name: str, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            self.modules[name] = value.__name__
            return value
        if isinstance(value, FUNCTIONS):
            self.functions[name] = str(getattr(value, "__name__", name))
            return self._recording(name, value)
        try:
            if self.constants.setdefault(name, encode(value)) != encode(value):
                self.cannot(f"{name} changes while the tests run")
        except Exception:
            self.cannot(f"the tests use {name}, which is neither a function nor data")
            self.names_classes = True
        return value

    def cannot(self, why: str) -> None:
        self.why_not = self.why_not or why

    def _recording(self, name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            entry: dict[str, Any] = {"name": name}
            if len(self.calls) < MOST_CALLS:
                self.calls.append(entry)
            else:
                self.cannot(f"more than {MOST_CALLS:,} calls")
            if sys.stdout is not self._stdout or any(
                getattr(builtins, name) is not PRISTINE[name] for name in INPUT_OUTPUT
            ):
                self.cannot("the tests read what is printed")
            before = self._as_data([args, kwargs], f"{name} is called with")
            entry["given"] = digest(before)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                self._raised(entry, error)
                raise
            finally:
                after = self._as_data([args, kwargs], f"{name} is called with")
                if after != before:
                    entry["after"] = after
            if isinstance(result, Iterator) and type(result).__module__ in ("builtins", "itertools"):
                entry["items"] = []
                return self._recording_items(entry, result)
            entry["result"] = self._as_data(result, f"{name} returns", returned=True)
            return result

        with contextlib.suppress(Exception):
            functools.update_wrapper(call, function)
        return call

    def _recording_items(self, entry: dict[str, Any], items: Any) -> Iterator[Any]:
        try:
            for item in items:
                entry["items"].append(self._as_data(item, f"{entry['name']} yields", returned=True))
                if len(entry["items"]) > MOST_CALLS:
                    self.cannot(f"more than {MOST_CALLS:,} items")
                    entry["items"].pop()
                yield item
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self.cannot(f"an iterator that {entry['name']} returned raised {type(error).__name__}")
            raise

    def _raised(self, entry: dict[str, Any], error: BaseException) -> None:
        kind = type(error)
        if PRISTINE.get(kind.__name__) is not kind:
            self.cannot(f"{entry['name']} raises {kind.__name__}")
            return
        entry["raises"] = [kind.__name__, self._as_data(list(error.args), f"{entry['name']} raises an error with")]

    def _as_data(self, value: Any, what: str, returned: bool = False) -> Any:
        try:
            return encode(value)
        except NotPlain as other:
            kind = other.args[0]
            self.cannot(f"{what} {kind.__name__}")
            if returned and _is_own(kind):
                self.own_classes.add(kind.__name__)
        except Exception as error:
            self.cannot(f"{what} what cannot be recorded ({type(error).__name__})")
        return None

    def as_data(self, most: int) -> dict[str, Any] | None:
        """Return everything that a replay needs; None if no replay is possible (`why_not`). most: maximum number of
        characters of JSON.
        """
        if self.why_not:
            return None
        record = {
            "calls": self.calls,
            "constants": self.constants,
            "modules": self.modules,
            "functions": self.functions,
        }
        if len(json.dumps(record)) > most:
            self.cannot("the calls have too much data")
            return None
        return record


def _is_own(kind: Any) -> bool:
    """Return True for a class of the candidate, False for a class of Python, of the standard library or of a
    package.
    """
    if not type.__dict__["__flags__"].__get__(kind) & HEAP_TYPE:
        return False
    home = sys.modules.get(kind.__module__)
    return kind.__module__ == "solution" or not hasattr(home, kind.__qualname__.partition(".")[0])


class Diverged(BaseException):
    """Raised if the tests make another call than the recorded one: they depend on chance, on time, or on the
    candidate's process.
    """


class Replayed:
    """The recorded names: their functions return the recorded results."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.next = 0
        self.diverged = ""
        """The first difference from the record; empty if there is none. Tests may catch `Diverged`."""

    def names(self) -> list[str]:
        return [*self.record["functions"], *self.record["constants"], *self.record["modules"]]

    def get(self, name: str) -> Any:
        """Raise KeyError for a name that the tests did not use."""
        if name in self.record["functions"]:
            return self._function(name)
        if name in self.record["modules"]:
            return importlib.import_module(self.record["modules"][name])
        return decode(self.record["constants"][name])

    def _function(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls = self.record["calls"]
            entry = calls[self.next] if self.next < len(calls) else {}
            self.next += 1
            if entry.get("name") != name or entry.get("given") != digest(encode([args, kwargs])):
                self.diverged = self.diverged or f"call {self.next} differs from the recorded one"
                raise Diverged(self.diverged)
            if "after" in entry:
                change([args, kwargs], decode(entry["after"]))
            if "raises" in entry:
                raise builtin_error(*entry["raises"])
            if "items" in entry:
                return (decode(item) for item in entry["items"])
            return decode(entry["result"])

        call.__name__ = call.__qualname__ = self.record["functions"][name]
        return call


def builtin_error(name: str, given: Any) -> BaseException:
    """Return the recorded exception. A record may be forged, so no other builtin (`exec`) is called with its
    content.
    """
    kind = PRISTINE.get(name)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise Diverged(f"{name} is no exception of Python")
    return kind(*decode(given))


def change(value: Any, after: Any) -> None:
    """Give lists, dicts and sets that were arguments the contents that the candidate left in them."""
    if isinstance(value, list | tuple) and len(value) == len(after):
        for mine, its in zip(value, after, strict=True):
            change(mine, its)
    if isinstance(value, dict):
        for key in value.keys() & after.keys():
            change(value[key], after[key])
    if value == after:
        return
    if isinstance(value, list):
        value[:] = after
    elif isinstance(value, dict | set):
        value.clear()
        value.update(after)


# -- pytest ------------------------------------------------------------------------------------------------------------

PLUGINS = ("assertion", "cacheprovider", "doctest", "faulthandler", "junitxml", "legacypath", "pastebin", "reports",
           "setuponly", "setupplan", "skipping", "stepwise", "threadexception", "unraisableexception",
           "warnings")  # fmt: skip
"""Parts of pytest that are switched off: plugins that only make reports, and marks that skip a test or expect it to
fail. The program could set these marks (`from solution import *`).
"""
ARGUMENTS = ["-x", "-s", "-qq", "--tb=no", "--no-header", "--no-summary", "--noconftest", "--rootdir=.",
             f"--config-file={os.devnull}", *(f"-pno:{name}" for name in PLUGINS)]  # fmt: skip


@functools.cache
def pytest() -> Any:
    """Return the installed pytest, even if the candidate has put something else in its place since the prelude."""
    return importlib.import_module("pytest")


with contextlib.suppress(ImportError):  # the sandbox of other formats does not have it
    pytest()
    importlib.import_module("unittest")


class Run:
    """Plugin of pytest that gives it the tests, which stand in no file, and records their outcomes.

    A test has passed if pytest reports that its call passed, and reports nothing else about it. The exit code is
    ignored.
    """

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.unusable = ""
        self.waiting = {"tests": "tests"}
        """Names of the tests that have not passed, by pytest's ids; "tests" before they are collected."""
        self.error: tuple[str, BaseException | str] | None = None
        """The first test that failed, and the reason."""
        self.running = "tests"

    def pytest_collection(self, session: Any) -> bool:
        """Collect the tests of the module."""
        node: Any = type("Tests", (pytest().Module,), {"_getobj": lambda _node: self.module})
        items = session.items = list(session.genitems(node.from_parent(session, path=session.startpath / "tests.py")))
        session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
        session.testscollected = len(items)
        if items:
            del self.waiting["tests"]
        for item in items:
            self.waiting[item.nodeid] = item.nodeid.partition("::")[2].partition("[")[0].replace("::", ".")
            for name in item.fixturenames:
                if name not in item._fixtureinfo.name2fixturedefs and name != "request":
                    self.unusable = f"the tests use the fixture {name!r}, which is not provided"
        if self.unusable:
            items.clear()
        return True

    def pytest_collectreport(self, report: Any) -> None:
        """Record an error of the collection."""
        if report.failed:
            self.failed(str(report.longrepr).strip().rpartition("\n")[2])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record which test begins."""
        self.running = self.waiting[nodeid]

    def pytest_runtest_makereport(self, call: Any) -> None:
        """Record an error of a test, of its fixtures, or of one of its parts."""
        if call.excinfo is not None:
            self.failed(call.excinfo.value)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record that a test has passed."""
        if report.outcome != "passed":
            self.failed(report.outcome)
        elif report.when == "call":
            self.waiting.pop(report.nodeid, None)

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Record the reason why the session ended: KeyboardInterrupt, or `pytest.exit`."""
        self.failed(excinfo.value)

    def pytest_internalerror(self, excinfo: Any) -> bool:
        """Record an error of pytest itself."""
        self.failed(excinfo.value)
        return True

    def failed(self, why: BaseException | str) -> None:
        self.error = self.error or (self.running, why)

    def outcome(self) -> tuple[str, BaseException | str] | None:
        """Run the tests. Return (the first that failed, the reason), or None. Raises `Unusable`."""
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        pytest().main(ARGUMENTS, plugins=[self])
        if self.error is None and self.unusable:
            raise Unusable(self.unusable)
        return self.error or next(((name, "it did not run to its end") for name in self.waiting.values()), None)


# -- the tests ------------------------------------------------------------------------------------------------------------


class Unusable(Exception):
    """Raised if the tests cannot be run, whatever the candidate is."""


def prepared(task: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the tests as (name, compiled code), before the candidate runs. Raises `Unusable`."""
    sources = [("setup", task["setup"])] + [
        (f"test {number}" if len(task["tests"]) > 1 else "tests", text)
        for number, text in enumerate(task["tests"], start=1)
    ]
    parts = []
    for name, text in sources:
        try:
            tree = ast.parse(text, TESTS)
            parts.append((name, compile(tree, TESTS, "exec", dont_inherit=True)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Unusable(f"the tests are not Python: {error}") from None
        for node in tree.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in names:
                if module.partition(".")[0] not in ("solution", "") and not _can_import(module):
                    raise Unusable(f"the tests import {module}, which the sandbox does not have")
    body = ast.parse("\n".join(task["tests"])).body
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    if task["format"] == "human_eval" and "check" not in defined:
        raise Unusable("the tests define no function check(candidate)")
    if task["format"] == "pytest_functions":
        tests = [node for node in body if _may_be_test(node)]
        if not tests:
            raise Unusable("there is no test: no function's name begins with test")
        if any(isinstance(node, ast.AsyncFunctionDef) for node in tests):
            raise Unusable("the tests are asynchronous functions, which pytest runs only with a plugin")
    return parts


def _may_be_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return bool(node.bases) or node.name.startswith("Test")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _can_import(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def run_tests(task: Mapping[str, Any], parts: Sequence[tuple[str, Any]], candidate: Any) -> str:
    """Run all tests until one fails. Return the failure, or "". Raises `Unusable` and `Diverged`."""
    texts = {name: text for (name, _code), text in zip(parts, [task["setup"], *task["tests"]], strict=True)}
    module = types.ModuleType("test_solution")
    space = vars(module)
    space["__builtins__"] = dict(PRISTINE)
    if task["format"] == "pytest_functions":
        sys.modules.update(solution=_module(candidate), test_solution=module, pytest=pytest())
    else:
        for name in used_names(texts.values()) & set(candidate.names()):
            if name not in PRISTINE or name == task["entry_point"]:
                space[name] = candidate.get(name)
    running: str = "tests"
    error: BaseException | str
    try:
        for running, code in parts:  # noqa: B007
            exec(code, space)
        if task["format"] == "human_eval":
            running = "check"
            space["check"](candidate.get(task["entry_point"]))
        if task["format"] != "pytest_functions" or (failed := Run(module).outcome()) is None:
            return ""
        running, error = failed
    except (Unusable, Diverged):
        raise
    except BaseException as other:
        error = other
    return f"{running}: {describe(error, texts.get(running) or chr(10).join(task['tests']))}"


def used_names(texts: Iterable[str]) -> set[str]:
    """Return the names that the tests read and do not define themselves."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in itertools.chain.from_iterable(ast.walk(ast.parse(text)) for text in texts):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    return read - bound


def _module(candidate: Any) -> types.ModuleType:
    """Return the module `solution` as tests import it."""

    class Solution(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name == "__all__":
                return [name for name in candidate.names() if not name.startswith("_")]
            try:
                return candidate.get(name)
            except KeyError:
                raise AttributeError(f"the program defines no {name!r}") from None

    return Solution("solution")


def describe(error: BaseException | str, tests: str) -> str:
    """Return the error in one line, with the line of the tests or of the program that raised it."""
    if isinstance(error, str):
        return error[:500]
    try:
        text = f"{type(error).__name__}: {error}".strip().rstrip(":")[:500]
        last: dict[str, int] = {}
        trace = error.__traceback__
        while trace is not None:
            last[trace.tb_frame.f_code.co_filename] = trace.tb_lineno
            trace = trace.tb_next
        if CANDIDATE in last:
            text += f" (line {last[CANDIDATE]} of the program)"
        lines = tests.split("\n")
        if last.get(TESTS, len(lines) + 1) <= len(lines):
            text += f", in `{lines[last[TESTS] - 1].strip()[:200]}`"
        return text
    except BaseException:
        return "an error that cannot be printed"


class Nowhere(io.TextIOBase):
    """Output of the program, which is discarded: it decides nothing, whatever its size."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


# -- the two calls --------------------------------------------------------------------------------------------------------


def record(task: dict[str, Any], most: int, nonce: str) -> dict[str, Any]:
    """Run the candidate and the tests: {nonce, passed, detail, record, why_not}; `passed` is None if the tests cannot
    be run.
    """
    answer = {"nonce": nonce, "passed": False, "detail": "", "record": None, "why_not": ""}
    try:
        parts = prepared(task)
    except Unusable as why:
        return {**answer, "passed": None, "detail": str(why)}
    sys.stdout = sys.stderr = Nowhere()
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    space = vars(module)
    candidate = Recorded(space)
    try:
        exec(parts[0][1], space)
        exec(compile(task["program"], CANDIDATE, "exec", dont_inherit=True), space)
        if task["entry_point"] and not callable(space.get(task["entry_point"])):
            return {**answer, "detail": f"the program defines no function {task['entry_point']!r}"}
    except BaseException as error:
        return {**answer, "detail": f"the program itself: {describe(error, '')}"}
    try:
        detail = run_tests(task, parts, candidate)
    except Unusable as why:
        return {**answer, "passed": None, "detail": str(why)}
    if detail:
        return {**answer, "detail": detail}
    if candidate.own_classes and not candidate.names_classes:
        name = min(candidate.own_classes)
        return {**answer, "detail": f"it returns an object of its own class {name}, which the tests do not know"}
    data = candidate.as_data(most)
    return {**answer, "passed": True, "record": data, "why_not": candidate.why_not}


def replay(task: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Run the tests on recorded calls: {passed, detail, why_not}; `passed` is None if the tests made other calls."""
    sys.stdout = sys.stderr = Nowhere()
    candidate = Replayed(data)
    try:
        detail = run_tests(task, prepared(task), candidate)
    except (Unusable, Diverged, KeyError, NotPlain) as why:
        return {"passed": None, "detail": "", "why_not": str(why)}
    if candidate.diverged:
        return {"passed": None, "detail": "", "why_not": candidate.diverged}
    return {"passed": not detail, "detail": detail, "why_not": ""}
