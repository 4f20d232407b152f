"""Which program is in a response."""

from __future__ import annotations

import pytest

from fgrl.feedback.rules.programs.extraction import complete, defines, extract, fenced

F = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("response", "program"),
    [
        (F, F),
        ("    return x\n", "    return x\n"),
        (f"Here it is:\n```python\n{F}```\nIt returns x.", F),
        (f"```py\n{F}```", F),
        (f"```\n{F}```", F),
        (f"~~~python\n{F}~~~", F),
        (f"```Python title=a\n{F}```", F),
        (f"```python\n{F}", F),
        (f"```python\n{F}```\nUse it:\n```python\nprint(f(1))\n```", F),
        (f"```python\nx = 1\n```\n```python\n{F}```", F),
        (f"```bash\npip install f\n```\n```\n{F}```", F),
        (f"```json\n{{}}\n```\n```python\n{F}```", F),
        (f"```python\ndef f(x):\n    return 0\n```\nBetter:\n```python\n{F}```", F),
        ("```python\nx = 1\n```\n```python\ny = 2\n```", "y = 2\n"),
        (f"````python\ntext = '''\n```\n'''\n{F}````", f"text = '''\n```\n'''\n{F}"),
        ("```json\n{}\n```", "```json\n{}\n```"),
        ("", ""),
    ],
)  # fmt: skip
def test_extract(response: str, program: str) -> None:
    assert extract(response, "f") == program


def test_without_a_wanted_function_the_last_block_counts() -> None:
    assert extract(f"```python\n{F}```\n```python\nx = 1\n```") == "x = 1\n"


def test_the_program_ends_before_a_stop_text() -> None:
    assert extract("    return x\n\nprint(f(1))\nclass A: pass", stop=["\nclass", "\nprint"]) == "    return x\n"
    assert extract("    return x\n", stop=["\ndef"]) == "    return x\n"


def test_a_body_continues_the_start_and_a_whole_function_comes_after_it() -> None:
    start = 'import math\n\ndef f(x):\n    """Itself."""\n'
    assert complete(start, "    return x\n", "f") == start + "    return x\n"
    assert complete(start, F, "f") == f"{start.rstrip()}\n\n\n{F}"
    assert complete(start, "    def f(y):\n        return y\n    return f(x)\n", "f").startswith(start + "    def f(y)")


def test_what_defines_a_function() -> None:
    assert defines("async def f (x): ...", "f")
    assert not defines("def fx(x): ...", "f")
    assert not defines("  def f(x): ...", "f")


def test_blocks_are_found_in_time_in_proportion_to_the_text() -> None:
    assert len(fenced("```\n" * 100_000)) == 50_000
