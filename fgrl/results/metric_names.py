"""Names of logged metrics in plain words, with their units."""

from __future__ import annotations

WORDS = {
    "reward": "reward of a response",
    "total_reward": "total reward (sum of the token rewards)",
    "reward_std": "standard deviation of the rewards",
    "reward/raw": "reward before normalization",
    "reward/normalized": "reward after normalization",
    "reward/segments": "segments per response",
    "reward/segment_tokens": "tokens per segment",
    "kl": "KL to the reference (nats per response)",
    "kl_coef": "weight of the KL penalty",
    "tokens": "length of a response (tokens)",
    "empty": "share of empty responses",
    "prompts_cut": "share of prompts that are longer than max_prompt_tokens",
    "finished": "share of finished responses",
    "credited": "share of tokens with a reward",
    "distinct": "share of different token pairs",
    "entropy": "entropy of the policy (nats per token)",
    "ref_entropy": "entropy of the reference (nats per token)",
    "zero_variance": "share of prompts whose responses all get the same reward",
    "missing": "share of missing rewards",
    "missing_verdicts": "share of missing verdicts",
    "unmatched": "share of quotes that are not in the response",
    "token_reward": "reward of a token",
    "token_reward_given": "reward of a token, as the reward gave it",
    "loss": "loss",
    "policy_loss": "policy loss",
    "value_loss": "value loss",
    "explained_variance": "explained variance of the values",
    "clip_fraction": "share of clipped probability ratios",
    "value_clip_fraction": "share of clipped values",
    "approx_kl": "KL of an update (nats per token)",
    "max_log_ratio": "largest log-ratio of an update (nats)",
    "lr": "learning rate",
    "grad_norm": "norm of the gradient",
    "critic_grad_norm": "norm of the critic's gradient",
    "accuracy": "share of pairs in the right order",
    "margin": "margin of chosen over rejected",
    "logp_chosen": "log-likelihood of chosen responses (nats)",
    "logp_rejected": "log-likelihood of rejected responses (nats)",
    "log_ratio_chosen": "log-ratio of chosen responses (nats)",
    "log_ratio_rejected": "log-ratio of rejected responses (nats)",
    "reward_chosen": "reward of chosen responses",
    "reward_rejected": "reward of rejected responses",
    "seconds/collect": "time for sampling (s)",
    "seconds/score": "time for scoring (s)",
    "seconds/train": "time for training (s)",
}
"""Other metrics keep their names."""


def in_words(name: str) -> str:
    """Return the metric in plain words; of an unknown one the name itself."""
    return WORDS.get(name, name)
