"""The engine: llama.cpp's models behind a native decode thread, for asyncio programs.

Names are loaded when first used, because the native libraries take a fraction of a second and
`unpaced --version` needs none of them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_ext._native import Histogram as Histogram
    from engine_ext._native import TokenEvent as TokenEvent
    from engine_ext._native import TokenFrames as TokenFrames
    from engine_ext._native import json_shape as json_shape
    from engine_ext.engine import Engine as Engine
    from engine_ext.errors import EngineBuildError as EngineBuildError
    from engine_ext.errors import EngineBusy as EngineBusy
    from engine_ext.errors import EngineError as EngineError
    from engine_ext.errors import GrammarError as GrammarError
    from engine_ext.errors import ModelLoadError as ModelLoadError
    from engine_ext.errors import SlotFileError as SlotFileError
    from engine_ext.errors import SlotNameError as SlotNameError
    from engine_ext.errors import TextError as TextError
    from engine_ext.loading.config import EngineConfig as EngineConfig
    from engine_ext.loading.decode_loop import DecodeLoop as DecodeLoop
    from engine_ext.loading.memory_plan import Device as Device
    from engine_ext.loading.memory_plan import MemoryPlan as MemoryPlan
    from engine_ext.loading.memory_plan import MemoryUse as MemoryUse
    from engine_ext.loading.memory_plan import list_devices as list_devices
    from engine_ext.loading.memory_plan import plan_memory as plan_memory
    from engine_ext.loading.model_info import ModelInfo as ModelInfo
    from engine_ext.loading.model_options import ModelOptions as ModelOptions
    from engine_ext.native_log import LogTarget as LogTarget
    from engine_ext.native_log import NativeLog as NativeLog
    from engine_ext.sequence.events import EventKind as EventKind
    from engine_ext.sequence.events import FinishReason as FinishReason
    from engine_ext.sequence.grammar import Grammar as Grammar
    from engine_ext.sequence.grammar import GrammarKind as GrammarKind
    from engine_ext.sequence.grammar import GrammarPart as GrammarPart
    from engine_ext.sequence.grammar import GrammarTrigger as GrammarTrigger
    from engine_ext.sequence.grammar import GrammarWait as GrammarWait
    from engine_ext.sequence.reasoning_budget import ReasoningBudget as ReasoningBudget
    from engine_ext.sequence.request import SequenceRequest as SequenceRequest
    from engine_ext.sequence.sampling_params import RANDOM_SEED as RANDOM_SEED
    from engine_ext.sequence.sampling_params import SAMPLERS as SAMPLERS
    from engine_ext.sequence.sampling_params import SamplingParams as SamplingParams
    from engine_ext.sequence.token_frames import FrameField as FrameField
    from engine_ext.sequence.token_frames import FrameTemplate as FrameTemplate
    from engine_ext.sequence.token_stream import TokenStream as TokenStream
    from engine_ext.stats import EngineState as EngineState
    from engine_ext.stats import EngineStats as EngineStats

_HOMES = {
    "DecodeLoop": "loading.decode_loop",
    "Device": "loading.memory_plan",
    "Engine": "engine",
    "EngineBuildError": "errors",
    "EngineBusy": "errors",
    "EngineConfig": "loading.config",
    "EngineError": "errors",
    "EngineState": "stats",
    "EngineStats": "stats",
    "EventKind": "sequence.events",
    "FinishReason": "sequence.events",
    "FrameField": "sequence.token_frames",
    "FrameTemplate": "sequence.token_frames",
    "Grammar": "sequence.grammar",
    "GrammarError": "errors",
    "GrammarKind": "sequence.grammar",
    "GrammarPart": "sequence.grammar",
    "GrammarTrigger": "sequence.grammar",
    "GrammarWait": "sequence.grammar",
    "Histogram": "_native",
    "LogTarget": "native_log",
    "NativeLog": "native_log",
    "MemoryPlan": "loading.memory_plan",
    "MemoryUse": "loading.memory_plan",
    "ModelInfo": "loading.model_info",
    "ModelOptions": "loading.model_options",
    "json_shape": "_native",
    "list_devices": "loading.memory_plan",
    "plan_memory": "loading.memory_plan",
    "ModelLoadError": "errors",
    "RANDOM_SEED": "sequence.sampling_params",
    "ReasoningBudget": "sequence.reasoning_budget",
    "SequenceRequest": "sequence.request",
    "SAMPLERS": "sequence.sampling_params",
    "SamplingParams": "sequence.sampling_params",
    "SlotFileError": "errors",
    "SlotNameError": "errors",
    "TextError": "errors",
    "TokenEvent": "_native",
    "TokenFrames": "_native",
    "TokenStream": "sequence.token_stream",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == "_native":
        importlib.import_module("engine_ext.engine")  # llama_cpp must be loaded before it
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
