"""The only place where code runs that comes from a data set or from a model.

    from fgrl.sandbox import run_code

    run_code("def check(response): return response.isupper()", "check", ["YES"])      # Outcome(kind="value", value=True)
    run_code("def check(response):\n  while True: pass", "check", ["YES"])             # Outcome(kind="timeout")

`docs/how-to/sandbox.md` describes what is blocked, what is not, and how to get the strong sandbox.
"""

from fgrl.sandbox.calls import Call, Kind, Outcome
from fgrl.sandbox.limits import CheckerSandbox, Limits, SandboxSpec
from fgrl.sandbox.sandbox import Sandbox, run_code, shared
from fgrl.sandbox.strength import DetectedSandbox, detect, refuse_unless

__all__ = [
    "Call",
    "CheckerSandbox",
    "DetectedSandbox",
    "Kind",
    "Limits",
    "Outcome",
    "Sandbox",
    "SandboxSpec",
    "detect",
    "refuse_unless",
    "run_code",
    "shared",
]
