"""A sampler's field stands in seven places: all of them have it, and hand on its value.

The C++ struct, its binding, the binding's types (.pyi), the engine's dataclass, a request's schema,
the settings, and the parameters in force that a response tells.
"""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engine_ext import SamplingParams
from engine_ext.base.native import load_native
from unpaced.request.effective_params import EffectiveParams
from unpaced.schemas.sampling import SamplingFields
from unpaced.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
TYPES = ROOT / "engine_ext" / "_native.pyi"
STRUCT = ROOT / "csrc" / "sampling" / "chain" / "sampling_params.h"
# A value of each field that is nobody's default, and a float of 32 bits.
VALUES: dict[str, Any] = {
    "seed": 7,
    "temperature": 0.5,
    "dynatemp_range": 0.25,
    "dynatemp_exponent": 1.5,
    "top_k": 11,
    "top_p": 0.75,
    "min_p": 0.125,
    "typical_p": 0.875,
    "top_n_sigma": 2.5,
    "xtc_probability": 0.375,
    "xtc_threshold": 0.25,
    "repeat_last_n": 33,
    "repeat_penalty": 1.25,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.625,
    "dry_multiplier": 0.75,
    "dry_base": 2.25,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 17,
    "dry_sequence_breakers": ("|",),
    "mirostat": 2,
    "mirostat_tau": 4.5,
    "mirostat_eta": 0.25,
    "adaptive_target": 0.5,
    "adaptive_decay": 0.75,
    "min_keep": 2,
    "samplers": ("top_k", "temperature"),
    "logit_bias": ((3, 1.5),),
    "ignore_eos": True,
}
# What the core gets in another form: a chain by numbers, and parts of the request beside it.
NOT_NATIVE = {"dry_sequence_breakers", "samplers", "logit_bias", "ignore_eos"}
ONLY_NATIVE = {"adaptive_p"}
# The flags' own names. llama-server has no flag for min_keep.
SETTINGS = {
    "temperature": "temp",
    "dynatemp_exponent": "dynatemp_exp",
    "typical_p": "typical",
    "dry_sequence_breakers": "dry_sequence_breaker",
    "mirostat_eta": "mirostat_lr",
    "mirostat_tau": "mirostat_ent",
}
NO_SETTING = {"min_keep"}


def plain() -> dict[str, Any]:
    return {name: value for name, value in VALUES.items() if name not in NOT_NATIVE}


def test_the_dataclass() -> None:
    defaults = asdict(SamplingParams())
    assert VALUES.keys() == defaults.keys()
    assert [name for name, value in VALUES.items() if defaults[name] == value] == []


def test_the_struct_has_them_with_the_same_defaults() -> None:
    text = STRUCT.read_text().partition("struct SamplingParams {")[2].partition("\n};")[0]
    found = re.findall(r"^  (?:float|bool|std::u?int32_t) (\w+) = ([-\w.]+);", text, re.MULTILINE)
    struct = {name: value.removesuffix("F") for name, value in found}
    assert struct.keys() - {"n_chain"} == plain().keys() | ONLY_NATIVE
    defaults = asdict(SamplingParams())
    for name in plain().keys() - {"seed"}:
        assert float(struct[name]) == defaults[name], name


def test_the_binding_and_its_types() -> None:
    native = load_native().SamplingParams()
    values: dict[str, Any] = plain() | {"adaptive_p": True}
    for name, value in values.items():
        assert getattr(native, name) != value
        setattr(native, name, value)
    # All of them are set: none is another's.
    assert {name: getattr(native, name) for name in values} == values
    bound = {name for name in dir(native) if not name.startswith("_")} - {"set_chain"}
    assert bound == values.keys()
    typed = TYPES.read_text().partition("class SamplingParams:\n")[2].partition("\nclass ")[0]
    assert set(re.findall(r"^    (\w+): ", typed, re.MULTILINE)) == bound


@pytest.mark.parametrize("name", VALUES)
def test_a_request_hands_it_on(name: str) -> None:
    fields_of_body = SamplingFields.model_fields
    assert name in fields_of_body
    value = VALUES[name]
    biases = value if name == "logit_bias" else None
    body = SamplingFields.model_validate({name: list(value) if isinstance(value, tuple) else value})
    made = body.to_sampling_params(SamplingParams(), biases)
    assert made == SamplingParams(**{name: value})


@pytest.mark.parametrize("name", sorted(VALUES.keys() - NO_SETTING))
def test_a_setting_hands_it_on(name: str) -> None:
    value = VALUES[name]
    given = (
        {"samplers": ";".join(value)} if name == "samplers" else {SETTINGS.get(name, name): value}
    )
    if name == "logit_bias":
        given = {name: ("3+1.5",)}
    assert Settings(**given).sampling_defaults() == SamplingParams(**{name: value})


def test_a_response_tells_it() -> None:
    told = EffectiveParams(SamplingParams(**(VALUES | {"ignore_eos": False}))).to_json()
    expected = VALUES | {
        "ignore_eos": False,
        "samplers": ["top_k", "temperature"],
        "dry_sequence_breakers": ["|"],
        "logit_bias": [{"token": 3, "bias": 1.5}],
    }
    assert {name: told[name] for name in VALUES} == expected
    assert EffectiveParams(SamplingParams(ignore_eos=True)).to_json()["ignore_eos"] is True


def test_a_seed_changes_nothing_else_and_is_checked() -> None:
    params = SamplingParams(**VALUES)
    assert params.with_seed(9) == SamplingParams(**(VALUES | {"seed": 9}))
    assert params.seed == 7
    with pytest.raises(ValueError, match=r"^seed: "):
        params.with_seed(1 << 32)


def test_requests_that_differ_in_their_seed_share_what_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[SamplingParams] = []
    check = SamplingParams.__post_init__

    def count(params: SamplingParams) -> None:
        checked.append(params)
        check(params)

    monkeypatch.setattr(SamplingParams, "__post_init__", count)
    defaults = SamplingParams(temperature=0.625)
    made = [SamplingFields(seed=i, top_k=7).to_sampling_params(defaults, None) for i in range(5)]
    assert [params.seed for params in made] == [0, 1, 2, 3, 4]
    assert {params.top_k for params in made} == {7}
    assert len(checked) == 2  # the defaults, and the first of them
