"""What a recipe's stages may be."""

from fgrl.stages.annotate import AnnotateStage
from fgrl.stages.average import AverageStage
from fgrl.stages.calibrate import CalibrateStage
from fgrl.stages.costs import CostsStage
from fgrl.stages.elo import EloStage
from fgrl.stages.evaluate import EvaluateStage
from fgrl.stages.finetune import FinetuneStage
from fgrl.stages.grade import GradeRelevanceStage, GradeStage
from fgrl.stages.human_accuracy import HumanAccuracyStage
from fgrl.stages.lm_eval import LmEvalStage
from fgrl.stages.pair import PairStage
from fgrl.stages.rl import RLStage
from fgrl.stages.sample import SampleStage
from fgrl.stages.select import SelectStage
