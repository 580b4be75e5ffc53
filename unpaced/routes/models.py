"""GET /v1/models, /v1/models/{model}, /models and /props: what is served."""

import time
from dataclasses import asdict
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from engine_ext import StepStats, cpu_library, read_build_info
from unpaced.http.errors import JSON_TYPE, no_such_model
from unpaced.http.routing import Routes
from unpaced.request.effective_params import EffectiveParams
from unpaced.request.model_host import ModelHost
from unpaced.routes.parts import host_of, templates_of

routes = Routes("models")

# llama.cpp's default, for clients that build prompts with it; nothing here reads it.
_MEDIA_MARKER: Final = "<__media__>"


@routes.get("/v1/models")
@routes.get("/models")
async def models(request: Request) -> Response:
    """OpenAI's list, with llama-server's `meta` and its Ollama-like twin."""
    host = host_of(request)
    name = host.names.first
    body = {
        "models": [
            {
                "name": name,
                "model": name,
                "modified_at": "",
                "size": "",
                "digest": "",
                "type": "model",
                "description": "",
                "tags": [""],
                "capabilities": ["completion"],
                "parameters": "",
                "details": {
                    "parent_model": "",
                    "format": "gguf",
                    "family": "",
                    "families": [""],
                    "parameter_size": "",
                    "quantization_level": "",
                },
            }
        ],
        "object": "list",
        "data": [_model(host)],
    }
    return Response(orjson.dumps(body), media_type=JSON_TYPE)


@routes.get("/v1/models/{model:path}")
async def model(request: Request) -> Response:
    """OpenAI's description of one model: the one that is served, under any of its names."""
    host, name = host_of(request), request.path_params["model"]
    if name not in host.names.aliases:
        raise no_such_model(name)
    return Response(orjson.dumps(_model(host) | {"id": name}), media_type=JSON_TYPE)


def _model(host: ModelHost) -> dict[str, Any]:
    return {
        "id": host.names.first,
        "aliases": host.names.aliases,
        "tags": host.names.tags,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "llamacpp",
        "meta": _meta(host),
    }


def _meta(host: ModelHost) -> dict[str, Any]:
    model = host.engine.model
    return {
        "vocab_type": model.vocab_type,
        "n_vocab": model.n_vocab,
        "n_ctx": model.n_ctx,
        "n_ctx_train": model.n_ctx_train,
        "n_embd": model.n_embd,
        "n_params": model.n_params,
        "size": model.size_bytes,
        "ftype": model.ftype,
    }


@routes.get("/props")
async def props(request: Request) -> Response:
    """llama-server's description of the server and of the defaults."""
    host = host_of(request)
    model, settings = host.engine.model, host.settings
    template, tool_use = await templates_of(request).describe(model)
    defaults = EffectiveParams(
        sampling=settings.sampling_defaults(), n_predict=-1
    ).to_defaults_json()
    body = {
        "default_generation_settings": {"params": defaults, "n_ctx": model.n_ctx},
        "total_slots": settings.n_slots,
        "model_alias": host.names.first,
        "model_ftype": model.ftype,
        "model_path": str(settings.model),
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": _MEDIA_MARKER,
        "endpoint_slots": settings.slots,
        "endpoint_props": settings.props,
        "endpoint_metrics": settings.metrics,
        "ui": settings.ui,
        "ui_settings": {},
        "chat_template": template.source,
        "chat_template_caps": (tool_use or template).capabilities,
        "bos_token": model.bos_piece,
        "eos_token": model.eos_piece,
        "build_info": host.fingerprint,
        "is_sleeping": host.is_asleep,
        "cors_proxy_enabled": False,
        "unpaced": _engine_facts(host),
    }
    if tool_use is not None:
        body["chat_template_tool_use"] = tool_use.source
    return Response(orjson.dumps(body), media_type=JSON_TYPE)


def _engine_facts(host: ModelHost) -> dict[str, Any]:
    """What llama-server has no key for: where the token loop runs, and on which cores."""
    placement, build = host.engine.placement, read_build_info()
    stats = host.engine.stats()
    return {
        "version": build.version,
        "build_profile": build.profile,
        "cpu_library": cpu_library(),
        "is_pinned": placement.is_pinned,
        "cores": {
            "decode": placement.decode_cores,
            "workers": placement.worker_cores,
            "front_end": placement.front_end_cores,
        },
        "decode_core": placement.decode_cores[0] if placement.is_pinned else None,
        "n_threads": placement.n_threads,
        "n_threads_batch": placement.n_threads_batch,
        "decode_loop": asdict(host.engine.decode_loop),
        "prefill": _prefill(host, stats.steps),
        "deterministic": {
            "on": host.settings.deterministic,
            "chunk_tokens": stats.steps.prefill_budget if host.settings.deterministic else None,
        },
        "prompt_cache": {
            "copied": stats.n_cache_copied,
            "computed": stats.n_cache_computed,
            "cost": {
                "copy_token_ms": stats.cache_cell_ns / 1e6 or None,
                "compute_token_ms": stats.steps.prompt_alone_ns / 1e6 or None,
            },
        },
        "shared_prefixes": {
            "is_on": not host.engine.model.why_prefixes_are_not_shared,
            "reason": host.engine.model.why_prefixes_are_not_shared,
        },
        "window_graphs": stats.n_window_graphs,
        "host_requests": dict(stats.n_requests_host),
    }


def _prefill(host: ModelHost, steps: StepStats) -> dict[str, Any]:
    """How much of a prompt a step computes beside requests that decode, and by what."""
    return {
        "budget_tokens": steps.prefill_budget,
        "max_itl_ms": host.settings.max_itl_ms or None,
        "cost": {
            "n_steps": steps.n_observed,
            "decode_step_ms": steps.decode_us / 1e3 or None,
            "prompt_token_ms": steps.prompt_token_ns / 1e6 or None,
        },
    }
