"""Functions of the user, named in a recipe as `rewards.py:score`: found, loaded, called, and their return values
checked.

- `file`: `FunctionFile` marks the field of a recipe; mistakes inside the file are reported when the recipe is checked
- `signatures`: the arguments of a function, and the type of its return annotation
- `calling`: `Caller` calls functions with the keyword arguments that TRL passes; several functions, async functions
- `returned`: return values as numbers, or the problem with them
- `reporting`: `UserCodeError`s of at most five lines
- `components`: checks of the return values of components, also of imported files
"""

from fgrl.kinds.functions.calling import Caller, Form, Texts, TrainerState
from fgrl.kinds.functions.components import (
    checked_advantages,
    checked_credit,
    checked_loss,
    checked_measured,
    checked_rewards,
    checked_starts,
    checked_state,
    nothing_scored,
    own_code,
    report_failures,
    written_at,
)
from fgrl.kinds.functions.file import FactoryFile, FunctionFile, key_of
from fgrl.kinds.functions.reporting import as_user_error
from fgrl.kinds.functions.returned import Returned, boundaries
