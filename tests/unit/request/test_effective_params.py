"""The parameters in force, as responses and /props show them."""

from engine_ext import SamplingParams
from unpaced.request.effective_params import EffectiveParams

# Recorded from llama-server at 0c1e57098.
GENERATION_SETTINGS_KEYS = (
    "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma "
    "xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty presence_penalty "
    "frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
    "dry_sequence_breakers mirostat mirostat_tau mirostat_eta adaptive_target adaptive_decay stop "
    "max_tokens n_predict n_keep n_discard ignore_eos stream logit_bias n_probs min_keep grammar "
    "grammar_lazy grammar_triggers preserved_tokens chat_format reasoning_format "
    "reasoning_in_content generation_prompt samplers speculative.types timings_per_token "
    "post_sampling_probs backend_sampling lora"
)
PROPS_PARAMS_KEYS = (
    "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma "
    "xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty presence_penalty "
    "frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n mirostat "
    "mirostat_tau mirostat_eta adaptive_target adaptive_decay max_tokens n_predict n_keep "
    "n_discard ignore_eos stream n_probs min_keep chat_format reasoning_format "
    "reasoning_in_content generation_prompt samplers speculative.types timings_per_token "
    "post_sampling_probs backend_sampling lora"
)


def test_generation_settings_have_llama_servers_keys_in_its_order() -> None:
    settings = EffectiveParams(SamplingParams(logit_bias=((5, 1.5),), ignore_eos=True))
    body = settings.to_json(eog_tokens=[2, 7])
    assert " ".join(body) == GENERATION_SETTINGS_KEYS
    assert " ".join(settings.to_defaults_json()) == PROPS_PARAMS_KEYS
    assert body["logit_bias"] == [
        {"bias": 1.5, "token": 5},
        {"bias": None, "token": 2},
        {"bias": None, "token": 7},
    ]
