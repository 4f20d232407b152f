"""The only place where code from a data set or from a model runs.

    from fgrl.feedback.sandbox import Call, shared

    shared().run(Call("def check(response): return response.isupper()", "check", ["YES"]))  # Outcome(kind="value", value=True)
    shared().run(Call("def check(response):\n  while True: pass", "check", ["YES"]))         # Outcome(kind="timeout")

`docs/how-to/sandbox.md` describes what is blocked, what is not, and how to get the strong sandbox.
"""

from fgrl.feedback.sandbox.calls import Call, Outcome
from fgrl.feedback.sandbox.limits import CheckerSandbox, ProgramSandbox, SandboxSpec
from fgrl.feedback.sandbox.sandbox import Sandbox, shared
from fgrl.feedback.sandbox.strength import detect, refuse_unless
