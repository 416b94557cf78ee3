"""An engine's words: how it logs and what its metrics are called. One file per engine."""

from __future__ import annotations

from typing import Final

from .base import Voice
from .sglang import SGLang
from .tensorrt_llm import TensorRTLLM
from .vllm import VLLM

__all__ = ["VOICES", "Voice"]

VOICES: Final[dict[str, type[Voice]]] = {voice.name: voice for voice in (TensorRTLLM, VLLM, SGLang)}
"""Voices by engine id."""
