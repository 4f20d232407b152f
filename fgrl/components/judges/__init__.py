"""Who decides what no program can check."""

from fgrl.components.judges.llm import LLMJudge
