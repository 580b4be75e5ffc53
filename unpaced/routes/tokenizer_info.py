"""GET and POST /tokenizer_info: vLLM's description of the tokeniser, which lm-eval asks for."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.errors import JSON_TYPE
from unpaced.http.routing import Routes
from unpaced.routes.parts import host_of

routes = Routes("tokens")

_KINDS = {1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLAMO2"}


@routes.get("/tokenizer_info")
@routes.post("/tokenizer_info")
async def tokenizer_info(request: Request) -> Response:
    """Special tokens as text and as ids (null for one the vocabulary lacks), chat template."""
    model = host_of(request).engine.model
    body: dict[str, Any] = {
        "tokenizer_class": f"llama.cpp {_KINDS.get(model.vocab_type, 'unknown')}",
        "vocab_size": model.n_vocab,
        "model_max_length": model.n_ctx,
        "bos_token": model.bos_piece or None,
        "eos_token": model.eos_piece or None,
        "bos_token_id": model.bos if model.bos >= 0 else None,
        "eos_token_id": model.eos if model.eos >= 0 else None,
        "add_bos_token": model.add_bos,
        "add_eos_token": model.add_eos,
        "chat_template": model.chat_template,
    }
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
