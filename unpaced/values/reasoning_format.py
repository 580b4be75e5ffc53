"""How an answer shows its reasoning: llama-server's names."""

from typing import Literal

ReasoningFormat = Literal["none", "auto", "deepseek", "deepseek-legacy"]
