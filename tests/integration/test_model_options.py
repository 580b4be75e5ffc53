"""Flags of loading and placement, each seen in what the engine then does."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from gguf import GGUFValueType

from engine_ext import (
    Engine,
    EngineConfig,
    EventKind,
    ModelLoadError,
    ModelOptions,
    plan_memory,
)
from engine_ext.loading.config import CacheType
from engine_ext.loading.model_options import LoadMode
from engine_ext.sequence.request import SequenceRequest
from engine_ext.sequence.sampling_params import SamplingParams
from tests.support.gguf_files import copy_with_keys, make_lora, split_model
from tests.support.settings import read_settings
from unpaced.settings.model import DEMO_MODEL
from unpaced.settings.model_defaults import with_model_defaults

pytestmark = pytest.mark.anyio

PROMPT = "Once upon a time there was a little"


async def greedy(*flags: str, n: int = 24) -> Sequence[int]:
    """Tokens of a greedy continuation with these flags of `unpaced serve`."""
    config = read_settings(["-c", "256", *flags]).engine_config()
    async with Engine(config) as engine:
        prompt = await engine.tokenize(PROMPT)
        stream = engine.submit(
            SequenceRequest(
                prompt=tuple(prompt), max_tokens=n, sampling=SamplingParams(temperature=0.0)
            )
        )
        return [event.token async for event in stream if event.kind == EventKind.TOKEN]


async def test_load_modes_give_the_same_tokens() -> None:
    expected = await greedy()
    assert len(expected) == 24
    for mode in get_args(LoadMode):
        assert await greedy("--load-mode", mode) == expected, mode
    assert await greedy("--no-mmap", "--mlock") == expected


@pytest.mark.parametrize(
    "flags",
    [
        ("--no-repack",),
        ("--no-host",),
        ("-nkvo",),
        ("--no-op-offload",),
        ("-ot", r"blk\.0\..*=CPU"),
        ("-cmoe", "-ncmoe", "2", "-ncffn", "2"),
        ("-dev", "none"),
        ("-sm", "none", "-mg", "0", "-ts", "1"),
        ("--numa", "distribute"),
        ("--poll", "0", "--poll-batch", "100", "--cpu-strict", "1", "-t", "2", "-tb", "2"),
        ("--lazy-mode", "off", "--check-tensors", "--no-warmup"),
        ("--yarn-ext-factor", "-1", "--rope-scaling", "none"),
    ],
    ids=" ".join,
)
async def test_what_moves_work_and_memory_changes_no_token(flags: tuple[str, ...]) -> None:
    assert await greedy(*flags) == await greedy()


@pytest.mark.parametrize(
    "flags",
    [
        ("--rope-freq-base", "500"),
        ("--rope-scale", "8", "--rope-scaling", "linear"),
        ("--rope-freq-scale", "0.125"),
        ("--rope-scaling", "yarn", "--yarn-orig-ctx", "64", "--rope-scale", "8",
         "--yarn-ext-factor", "1", "--yarn-attn-factor", "3"),
        ("--override-kv", "llama.rope.freq_base=float:500"),
    ],
    ids=" ".join,
)  # fmt: skip
async def test_positions_are_what_the_flags_say(flags: tuple[str, ...]) -> None:
    assert await greedy(*flags) != await greedy()


async def test_rope_scale_is_the_inverse_of_the_frequencies() -> None:
    assert await greedy("--rope-scale", "8") == await greedy("--rope-freq-scale", "0.125")


async def test_metadata_can_be_overridden() -> None:
    flag = "tokenizer.ggml.add_bos_token=bool:"
    lengths = []
    for value in ("true", "false"):
        config = read_settings(["--override-kv", flag + value]).engine_config()
        async with Engine(config) as engine:
            lengths.append(len(await engine.tokenize("a")))
    assert lengths[0] == lengths[1] + 1


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("-dev", "CUDA7"), "there is no device CUDA7; there are: none"),
        (("-ot", "x=Nowhere"), "there is no buffer type Nowhere; there are: CPU"),
        (("--override-kv", "a.b"), "an override is KEY=TYPE:VALUE, not a.b"),
        (("--override-kv", "a.b=int:x"), "not a number in the override a.b=int:x"),
        (("--override-kv", "a.b=bool:1"), "type or value does not fit"),
        (("--lora", "/nowhere.gguf"), "cannot load LoRA adapter /nowhere.gguf"),
    ],
)
async def test_what_there_is_not_ends_the_start(flags: tuple[str, ...], text: str) -> None:
    with pytest.raises(ModelLoadError, match=re.escape(text)):
        await greedy(*flags)


async def test_lora_adapters_change_tokens_by_their_scale(tmp_path: Path) -> None:
    adapter = str(make_lora(tmp_path / "a.gguf"))
    plain = await greedy()
    assert await greedy("--lora", adapter) != plain
    assert await greedy("--lora", adapter) == await greedy("--lora-scaled", f"{adapter}:1.0")
    assert await greedy("--lora-scaled", f"{adapter}:0") == plain
    assert await greedy("--lora", adapter, "--lora-init-without-apply") == plain


async def test_a_split_model_loads_from_its_first_file(tmp_path: Path) -> None:
    assert await greedy("-m", str(split_model(tmp_path))) == await greedy()


# -- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cache_type", get_args(CacheType))
async def test_every_cache_type_serves_and_takes_what_the_plan_says(cache_type: str) -> None:
    flags = ("-ctk", cache_type, "-ctv", cache_type, "-fa", "on")
    assert len(await greedy(*flags)) == 24
    plan = plan_memory(read_settings(["-c", "256", *flags]).engine_config())
    bits = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5}
    expected = plan_memory(read_settings(["-c", "256"]).engine_config()).uses[0].context_bytes
    expected = int(expected * bits.get(cache_type, 4.5) / 16)
    assert plan.uses[0].context_bytes == expected


def test_the_plan_counts_weights_and_follows_the_context() -> None:
    # Rearranged for a processor with AMX they take more than in the file.
    as_they_are = ModelOptions(repack=False)
    plans = {
        n_ctx: plan_memory(
            EngineConfig(model_path=DEMO_MODEL, n_ctx=n_ctx, options=as_they_are)
        ).uses[0]
        for n_ctx in (256, 512)
    }
    assert plans[512].context_bytes == 2 * plans[256].context_bytes
    size = DEMO_MODEL.stat().st_size
    assert 0.9 * size < plans[256].model_bytes <= size


def test_a_plan_of_no_model_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF nonsense")
    with pytest.raises(ModelLoadError, match=re.escape(str(file))):
        plan_memory(EngineConfig(model_path=file, options=ModelOptions()))


# -- sampling defaults -----------------------------------------------------------------------


async def test_a_models_sampling_defaults_replace_what_nobody_set(tmp_path: Path) -> None:
    file = copy_with_keys(
        tmp_path / "m.gguf",
        general__sampling__temp=(GGUFValueType.FLOAT32, 0.25),
        general__sampling__top_k=(GGUFValueType.INT32, 7),
        general__sampling__sequence=(GGUFValueType.STRING, "top_k;temperature"),
        general__sampling__penalty_repeat=(GGUFValueType.FLOAT32, -5.0),
        general__sampling__mirostat=(GGUFValueType.STRING, "many"),
    )
    settings = read_settings(["-m", str(file), "-c", "64", "--top-k", "3"])
    async with Engine(settings.engine_config()) as engine:
        metadata = engine.model.sampling_metadata
    sampling = with_model_defaults(settings, metadata).sampling_defaults()
    assert sampling.temperature == pytest.approx(0.25)
    assert sampling.top_k == 3
    assert sampling.samplers == ("top_k", "temperature")
    # What cannot be used is left out.
    assert (sampling.repeat_penalty, sampling.mirostat) == (1.0, 0)


LONG = ("--override-kv", "llama.context_length=int:65536")


def test_each_slot_has_the_training_context_where_none_is_asked_for() -> None:
    for flags, n_ctx, n_ctx_slot in (
        (("-np", "3"), 3072, 1024),
        (("-np", "3", "-c", "0"), 3072, 1024),
        (("-np", "3", "--kv-unified"), 1024, 1024),
        (("-np", "3", "--fit", "off"), 1536, 512),
        ((), 1024, 1024),
    ):
        plan = plan_memory(read_settings([*flags]).engine_config())
        assert (plan.n_ctx, plan.n_ctx_slot, plan.fit) == (n_ctx, n_ctx_slot, ""), flags


@pytest.mark.parametrize("slots", ["1", "2"])
def test_a_context_that_nobody_asked_for_fits_the_memory(slots: str) -> None:
    whole = plan_memory(read_settings([*LONG, "-np", slots]).engine_config())
    assert whole.n_ctx == 65536 * int(slots)
    limit = sum(use.total_bytes for use in whole.uses) // 2
    config = read_settings([*LONG, "-np", slots, "--fit-target", "0"]).engine_config()
    plan = plan_memory(replace(config, fit_host_bytes=limit))
    assert 0.9 * limit < sum(use.total_bytes for use in plan.uses) <= limit
    assert plan.n_ctx_slot % 256 == 0
    assert str(plan.n_ctx) in plan.fit
    plan = plan_memory(replace(config, fit_host_bytes=0))
    assert plan.n_ctx_slot == 4096
    asked = read_settings([*LONG, "-np", slots, "-c", "0"]).engine_config()
    assert plan_memory(replace(asked, fit_host_bytes=0)).n_ctx_slot == 65536


async def test_the_engine_takes_what_fits() -> None:
    config = read_settings([*LONG, "-np", "1", "-fitt", "0", "-fitc", "512"]).engine_config()
    async with Engine(replace(config, fit_host_bytes=0)) as engine:
        assert engine.model.n_ctx == 512
