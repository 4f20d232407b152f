"""The kinds of component that a recipe may name. Read this file first.

A component is a pydantic model: its typed fields are its schema in recipes, the docstring under a field is its help.
Constructing one is cheap; a component that needs a model or a file asks for it in `setup(run)`.

    @register("every_third")
    class EveryThird(Segmenter):
        '''A segment every third token.'''

        def starts(self, view):
            ...
"""

# The order is that of `fgrl list`.
# isort: off
from fgrl.kinds.run import Run, Ticker
from fgrl.kinds.planning import (
    UNDRAWN,
    AtMost,
    Expected,
    Peek,
    Planning,
    ToDraw,
    stated,
)
from fgrl.kinds.needs import ANSWER_NEEDS, GIVEN_NEEDS, GRADED_NEEDS, REFERENCE_OUTPUTS, ROLLOUT_NEEDS, check_needs
from fgrl.kinds.reader import Reader
from fgrl.kinds.verifier import Checked, Scope, Verifier
from fgrl.kinds.client import Client
from fgrl.kinds.asker import Asker
from fgrl.kinds.annotator import Annotator
from fgrl.kinds.rewriter import ChainAttempt, ChainCase, Rewriter
from fgrl.kinds.pair_builder import PairBuilder
from fgrl.kinds.segmenter import Segmenter
from fgrl.kinds.normalizer import Normalizer
from fgrl.kinds.judge import Judge
from fgrl.kinds.relevance import Relevance
from fgrl.kinds.reward import Reward, note_step, scorers
from fgrl.kinds.reward_wrapper import RewardWrapper
from fgrl.kinds.offline_algorithm import CreditsTokens, Encoded, OfflineAlgorithm
from fgrl.kinds.online_algorithm import OnlineAlgorithm
from fgrl.kinds.auxiliary import Auxiliary, AuxiliarySettings, TrainsModels, auxiliaries
from fgrl.kinds.scoring import check_scorer
from fgrl.kinds.metric import Metric
from fgrl.kinds.engine import (
    CorrectedEngine,
    Correction,
    Drawer,
    Drawing,
    DrawRequest,
    Early,
    Elsewhere,
    Engine,
    default_engine,
)
from fgrl.kinds.environment import Environment, Episode, Stepped
from fgrl.kinds.transfer import Parcel, ServerRefused, ServerGone, Serving, Transfer
from fgrl.kinds.stage import Accelerator, Inspectable, MadeModel, Stage
from fgrl.types import Numbers
from fgrl.types.meanings import Better, Meaning, Purpose, meaning_in
# isort: on
