"""Reward functions that do what nobody expects: the line that the report names, and what it says. Each is the body of `score`."""

from __future__ import annotations

from dataclasses import dataclass

IMPORTS = "import asyncio, decimal, os, random, sys, threading, warnings\nimport numpy as np\nimport torch\n"
NUMBERS, TOKENS, SPANS = "", " -> list[list[float]]", " -> list[list[tuple[int, int, float]]]"
PLAIN = "return [sum(map(ord, text)) % 7 / 7 for text in completions]"


@dataclass(frozen=True)
class Case:
    """A hostile function."""

    body: str
    says: str
    """Part of the first line of the report."""
    line: int = 1
    """Which line of the body the report names, from 1; 0: the definition."""
    returns: str = NUMBERS
    is_async: bool = False

    def source(self) -> str:
        head = f"{'async ' * self.is_async}def score(completions, completion_ids, log_extra, log_metric, **kwargs){self.returns}:\n"
        return IMPORTS + head + "".join(f"    {line}\n" for line in self.body.splitlines())

    @property
    def reported_line(self) -> int:
        return IMPORTS.count("\n") + 1 + self.line


def of_all(value: str) -> str:
    return f"return [{value} for text in completions]"


WRONG = {
    # -- no list of numbers
    "nothing": Case("completions.count", "returned None", 0),
    "a number": Case("return 0.5", "returned 0.5 (float)"),
    "a text": Case("return 'abcd'", "returned 'abcd' (str)"),
    "bytes": Case("return b'abcd'", "returned b'abcd' (bytes)"),
    "a set": Case("return {1.0, 2.0, 3.0, 4.0}", "returned a set of 4 float"),
    "a mapping": Case("return dict.fromkeys(range(4), 0.0)", "returned {0: 0.0"),
    "a function": Case("return score", "(function)"),
    "a mock": Case("from unittest.mock import MagicMock\nreturn MagicMock()", "returned 0 values for 4", 2),
    "texts": Case(of_all("'0.5'"), "returned '0.5' (str)"),
    "lists": Case(of_all("[0.5]"), "returned a list of 1 float"),
    "complex numbers": Case(of_all("1j"), "returned 1j (complex)"),
    "objects": Case(of_all("object()"), "(object)"),
    "an object that raises as a number": Case("class Own:\n    def __float__(self): raise RuntimeError\nreturn [Own()] * 4", "(Own) for completion 0", 3),
    "an object with a strange shape": Case("class Own:\n    shape = ndim = 'round'\nreturn [Own()] * 4", "(Own) for completion 0", 3),
    "coroutines": Case("async def later(): return 1.0\nreturn [later() for text in completions]", "(coroutine)", 2),
    "a matrix": Case("return np.zeros((4, 2))", "returned a ndarray [2]"),
    "an array of texts": Case("return np.array(['a'] * 4)", "returned 'a' (str)"),
    "dates": Case("return np.zeros(4, 'datetime64[s]')", "(datetime)"),
    "a tensor without an axis": Case("return torch.tensor(0.5)", "returned 0.5 (float)"),
    "a tensor without data": Case("return torch.zeros(4, device='meta')", "returned a Tensor []"),
    "a complex tensor": Case("return torch.zeros(4, dtype=torch.complex64) + 1j", "returned 1j (complex)"),
    # -- how many
    "no values": Case("return []", "returned 0 values for 4"),
    "too few": Case("return [0.0]", "returned 1 values for 4"),
    "too many": Case("return [0.0] * 9", "returned 9 values for 4"),
    "a generator that raises": Case("yield 1.0\nyield 1 / 0", "raised ZeroDivisionError", 2),
    # -- which numbers
    "NaN": Case(of_all("float('nan')"), "returned nan"),
    "infinity": Case(of_all("float('inf')"), "returned inf"),
    "infinity of NumPy": Case("return -np.full(4, np.inf)", "returned -inf"),
    "infinite in float32": Case(of_all("1e39"), "returned 1e+39"),
    "a number whose square is infinite": Case(of_all("3e38 * (-1) ** len(text)"), "returned 3e+38"),
    "an integer beyond floats": Case(of_all("10**400"), "(int) for completion 0"),
    "a decimal that is no number": Case(of_all("decimal.Decimal('sNaN')"), "(Decimal)"),
    # -- numbers of tokens
    "one number for tokens": Case(of_all("1.0"), "returned 1.0 (float)", returns=TOKENS),
    "a token too few": Case("return [[0.0] * (len(ids) - 1) for ids in completion_ids]", "numbers for completion 0", returns=TOKENS),
    "infinite for a token": Case("return [[1e300] * len(ids) for ids in completion_ids]", "returned 1e+300", returns=TOKENS),
    "texts for tokens": Case("return [['a'] * len(ids) for ids in completion_ids]", "returned 'a' (str)", returns=TOKENS),
    # -- spans
    "a span behind the text": Case(of_all("[(0, len(text) + 1, 1.0)]"), "a span that ends at", returns=SPANS),
    "a span in UTF-8": Case(of_all("[(0, len((text + '🎉').encode()), 1.0)]"), "a span that ends at", returns=SPANS),
    "a negative span": Case(of_all("[(-2, 0, 1.0)]"), "for the start of span 0", returns=SPANS),
    "a reversed span": Case(of_all("[(1, 0, 1.0)]"), "before its start 1", returns=SPANS),
    "a span of fractions": Case(of_all("[(0.0, 0.5, 1.0)]"), "valid integer", returns=SPANS),
    "a span of texts": Case(of_all("[('0', '1', 1.0)]"), "valid integer", returns=SPANS),
    "a span without a value": Case(of_all("[(0, 0, None)]"), "returned None for the value of span 0", returns=SPANS),
    "a span worth NaN": Case(of_all("[(0, 0, float('nan'))]"), "returned nan (float) for the value", returns=SPANS),
    "a span worth too much": Case(of_all("[(0, 0, 1e39)]"), "returned 1e+39 (float) for the value", returns=SPANS),
    "a pair as a span": Case(of_all("[(0, 0)]"), "a tuple of 2 int", returns=SPANS),
    "a mapping without an end": Case(of_all("[{'start': 0, 'value': 1.0}]"), "for the end of span 0 of completion 0: Field required", returns=SPANS),
    "a text as a span": Case(of_all("['0:1']"), "returned '0:1' (str) for span 0", returns=SPANS),
    # -- what it raises
    "an exception": Case("raise ValueError('no')", "raised ValueError: no"),
    "an exception in a coroutine": Case("await asyncio.sleep(0)\nraise KeyError('no')", "raised KeyError", 2, is_async=True),
    "a cancelled coroutine": Case("raise asyncio.CancelledError", "raised CancelledError", is_async=True),
    "a cancelled task": Case("raise asyncio.CancelledError", "raised CancelledError"),
    "BaseException": Case("raise BaseException('no')", "raised BaseException: no"),
    "GeneratorExit": Case("raise GeneratorExit", "GeneratorExit"),
    "StopIteration": Case("raise StopIteration", "raised StopIteration"),
    "sys.exit": Case("sys.exit(0)", "raised SystemExit: 0"),
    "half a character": Case("raise ValueError(chr(0xD800))", "raised ValueError: "),
    "a long exception": Case("raise ValueError('no ' * 10**5)", "raised ValueError: no no"),
    "a group": Case("raise ExceptionGroup('both', [ValueError(), KeyError()])", "raised ExceptionGroup: both"),
    "endless recursion": Case("return score(completions, completion_ids, log_extra, log_metric)", "raised RecursionError"),
    "no memory": Case("raise MemoryError", "raised MemoryError"),
    "a petabyte": Case("return bytearray(10**15)", "raised MemoryError"),
    "an unknown module": Case("import not_there", "raised ModuleNotFoundError"),
    "an error in another thread": Case("from concurrent.futures import ThreadPoolExecutor as Pool\nreturn Pool(1).submit(lambda: 1 / 0).result()", "raised ZeroDivisionError", 2),
    "no reward at all": Case(of_all("None"), "score returned None for each of the 4 responses of iteration 0, so none has a reward", 0),
    # -- what it logs
    "an object to log": Case(f"log_extra('own', [object()] * 4)\n{PLAIN}", "log_extra('own'): the value for completion 0"),
    "half a character to log": Case(f"log_extra('own', [chr(0xD800)] * 4)\n{PLAIN}", "raised ValueError: log_extra('own')"),
    "too few to log": Case(f"log_extra('own', [1])\n{PLAIN}", "raised ValueError: log_extra('own')"),
    "a text as a metric": Case(f"log_metric('own', 'high')\n{PLAIN}", "raised ValueError"),
    "an endless metric": Case(f"log_metric('own', 10**400)\n{PLAIN}", "raised OverflowError"),
}  # fmt: skip
"""Ends with exit code 7."""

OTHER_CODES = {
    "an interrupt": (Case("raise KeyboardInterrupt", "interrupted"), 130),
}
"""Ends with another documented code."""

CHANGES = {
    "another default type": ("torch.set_default_dtype(torch.float64)", "torch's default type"),
    "other threads": ("torch.set_num_threads(torch.get_num_threads() + 1)", "torch's number of threads"),
    "another default device": ("torch.set_default_device('meta')", "torch's default device"),
    "other algorithms": ("torch.use_deterministic_algorithms(True)", "torch's determinism"),
    "gradients": ("torch.set_grad_enabled(True)", "torch's gradient mode"),
}
"""What precedes `PLAIN` and changes the whole process, and how the run calls it."""

HARMLESS = {
    "another folder": "os.chdir('/')",
    "a folder that is gone": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "a stdout that is nothing": "sys.stdout = sys.stderr = None",
    "no gradients": "torch.set_grad_enabled(False)",
    "other seeds": "random.seed(0); np.random.seed(0); torch.manual_seed(0)",
    "its own draws": "random.random(); np.random.rand(); torch.rand(3)",
    "changed inputs": "given = list(completions); completions.clear(); completion_ids.clear(); completions = given",
    "a thread that stays": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "values of NumPy to log": "log_extra('own', list(np.arange(4.0)))",
}
"""What precedes `PLAIN`, which is trained as without it."""
