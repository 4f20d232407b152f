"""Losses: `offline_algorithm` on fixed data, `online_algorithm` on the policy's own samples."""

from fgrl.components.algorithms.bradley_terry import BradleyTerry
from fgrl.components.algorithms.dpo import DPO
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.ppo import PPO
from fgrl.components.algorithms.rtt_grpo import RTTGRPO, ReleasedOrder
from fgrl.components.algorithms.sft import SFT
from fgrl.components.algorithms.token_bce import TokenBCE
