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
    from engine_ext._native import WaitingRoom as WaitingRoom
    from engine_ext._native import give_back_heap as give_back_heap
    from engine_ext._native import json_shape as json_shape
    from engine_ext.base.build_info import BuildInfo as BuildInfo
    from engine_ext.base.build_info import read_build_info as read_build_info
    from engine_ext.base.errors import EngineBuildError as EngineBuildError
    from engine_ext.base.errors import EngineBusy as EngineBusy
    from engine_ext.base.errors import EngineError as EngineError
    from engine_ext.base.errors import GrammarError as GrammarError
    from engine_ext.base.errors import ModelLoadError as ModelLoadError
    from engine_ext.base.errors import SlotFileError as SlotFileError
    from engine_ext.base.errors import SlotNameError as SlotNameError
    from engine_ext.base.errors import TextError as TextError
    from engine_ext.base.native_log import LogTarget as LogTarget
    from engine_ext.base.native_log import NativeLog as NativeLog
    from engine_ext.engine.builtin_template import builtin_templates as builtin_templates
    from engine_ext.engine.builtin_template import format_chat as format_chat
    from engine_ext.engine.engine import Engine as Engine
    from engine_ext.engine.stats import EngineState as EngineState
    from engine_ext.engine.stats import EngineStats as EngineStats
    from engine_ext.engine.step_stats import StepStats as StepStats
    from engine_ext.loading.config import CacheType as CacheType
    from engine_ext.loading.config import EngineConfig as EngineConfig
    from engine_ext.loading.config import StepKernels as StepKernels
    from engine_ext.loading.decode_loop import COMPILING_PATIENCE as COMPILING_PATIENCE
    from engine_ext.loading.decode_loop import Card as Card
    from engine_ext.loading.decode_loop import DecodeLoop as DecodeLoop
    from engine_ext.loading.devices import Device as Device
    from engine_ext.loading.devices import cpu_library as cpu_library
    from engine_ext.loading.devices import list_devices as list_devices
    from engine_ext.loading.gguf_header import GgufHeader as GgufHeader
    from engine_ext.loading.gguf_header import model_parts as model_parts
    from engine_ext.loading.gguf_header import read_gguf_header as read_gguf_header
    from engine_ext.loading.memory_plan import MemoryPlan as MemoryPlan
    from engine_ext.loading.memory_plan import MemoryUse as MemoryUse
    from engine_ext.loading.memory_plan import plan_memory as plan_memory
    from engine_ext.loading.model_file import check_model_file as check_model_file
    from engine_ext.loading.model_info import ModelInfo as ModelInfo
    from engine_ext.loading.model_options import LazyMode as LazyMode
    from engine_ext.loading.model_options import LoadMode as LoadMode
    from engine_ext.loading.model_options import ModelOptions as ModelOptions
    from engine_ext.loading.model_options import Numa as Numa
    from engine_ext.loading.model_options import RopeScaling as RopeScaling
    from engine_ext.loading.model_options import SplitMode as SplitMode
    from engine_ext.loading.placement import Placement as Placement
    from engine_ext.loading.rpc import run_rpc_worker as run_rpc_worker
    from engine_ext.loading.rpc import use_rpc_workers as use_rpc_workers
    from engine_ext.sequence.events import EventKind as EventKind
    from engine_ext.sequence.events import FinishReason as FinishReason
    from engine_ext.sequence.grammar import Grammar as Grammar
    from engine_ext.sequence.grammar import GrammarKind as GrammarKind
    from engine_ext.sequence.grammar import GrammarPart as GrammarPart
    from engine_ext.sequence.grammar import GrammarTrigger as GrammarTrigger
    from engine_ext.sequence.grammar import GrammarWait as GrammarWait
    from engine_ext.sequence.reasoning_budget import ReasoningBudget as ReasoningBudget
    from engine_ext.sequence.request import MAX_STOP_BYTES as MAX_STOP_BYTES
    from engine_ext.sequence.request import SequenceRequest as SequenceRequest
    from engine_ext.sequence.sampling_params import RANDOM_SEED as RANDOM_SEED
    from engine_ext.sequence.sampling_params import SAMPLERS as SAMPLERS
    from engine_ext.sequence.sampling_params import SamplingParams as SamplingParams
    from engine_ext.sequence.token_frames import FrameField as FrameField
    from engine_ext.sequence.token_frames import FrameTemplate as FrameTemplate
    from engine_ext.sequence.token_stream import TokenStream as TokenStream
    from engine_ext.threads.client import client_key as client_key
    from engine_ext.threads.client import turn_taker as turn_taker
    from engine_ext.threads.fair_threads import FairThreads as FairThreads

_HOMES = {
    "BuildInfo": "base.build_info",
    "CacheType": "loading.config",
    "StepKernels": "loading.config",
    "Card": "loading.decode_loop",
    "COMPILING_PATIENCE": "loading.decode_loop",
    "DecodeLoop": "loading.decode_loop",
    "Device": "loading.devices",
    "Engine": "engine.engine",
    "EngineBuildError": "base.errors",
    "EngineBusy": "base.errors",
    "EngineConfig": "loading.config",
    "EngineError": "base.errors",
    "EngineState": "engine.stats",
    "EngineStats": "engine.stats",
    "StepStats": "engine.step_stats",
    "EventKind": "sequence.events",
    "FairThreads": "threads.fair_threads",
    "FinishReason": "sequence.events",
    "FrameField": "sequence.token_frames",
    "FrameTemplate": "sequence.token_frames",
    "GgufHeader": "loading.gguf_header",
    "Grammar": "sequence.grammar",
    "GrammarError": "base.errors",
    "GrammarKind": "sequence.grammar",
    "GrammarPart": "sequence.grammar",
    "GrammarTrigger": "sequence.grammar",
    "GrammarWait": "sequence.grammar",
    "Histogram": "_native",
    "LazyMode": "loading.model_options",
    "LoadMode": "loading.model_options",
    "LogTarget": "base.native_log",
    "MAX_STOP_BYTES": "sequence.request",
    "MemoryPlan": "loading.memory_plan",
    "MemoryUse": "loading.memory_plan",
    "ModelInfo": "loading.model_info",
    "ModelLoadError": "base.errors",
    "ModelOptions": "loading.model_options",
    "NativeLog": "base.native_log",
    "Numa": "loading.model_options",
    "Placement": "loading.placement",
    "RANDOM_SEED": "sequence.sampling_params",
    "ReasoningBudget": "sequence.reasoning_budget",
    "RopeScaling": "loading.model_options",
    "SAMPLERS": "sequence.sampling_params",
    "SamplingParams": "sequence.sampling_params",
    "SequenceRequest": "sequence.request",
    "SlotFileError": "base.errors",
    "SlotNameError": "base.errors",
    "SplitMode": "loading.model_options",
    "TextError": "base.errors",
    "TokenEvent": "_native",
    "TokenFrames": "_native",
    "TokenStream": "sequence.token_stream",
    "WaitingRoom": "_native",
    "builtin_templates": "engine.builtin_template",
    "check_model_file": "loading.model_file",
    "cpu_library": "loading.devices",
    "client_key": "threads.client",
    "turn_taker": "threads.client",
    "format_chat": "engine.builtin_template",
    "give_back_heap": "_native",
    "json_shape": "_native",
    "list_devices": "loading.devices",
    "model_parts": "loading.gguf_header",
    "plan_memory": "loading.memory_plan",
    "read_build_info": "base.build_info",
    "read_gguf_header": "loading.gguf_header",
    "run_rpc_worker": "loading.rpc",
    "use_rpc_workers": "loading.rpc",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == "_native":
        importlib.import_module("engine_ext.engine.engine")  # llama_cpp must be loaded before it
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
