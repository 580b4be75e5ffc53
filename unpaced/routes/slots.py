"""GET /slots, and POST /slots/N?action=save|restore|erase."""

import unicodedata
from pathlib import Path
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from engine_ext import EngineBusy, EngineError, SlotFileError, SlotNameError, client_key
from unpaced.completion.admission import Admission
from unpaced.http.body import read_object
from unpaced.http.errors import (
    JSON_TYPE,
    ApiError,
    invalid,
    not_supported,
    server_fault,
    unavailable,
)
from unpaced.http.routing import Routes
from unpaced.request.cache_domain import cache_domain
from unpaced.request.model_host import ModelHost
from unpaced.routes.parts import completions_of, host_of
from unpaced.values.json_values import json_type

routes = Routes("slots")

# llama-server's (llama.cpp 0c1e57098 common/common.cpp:796-868): characters that are none of a
# file's name on some system, and look-alikes of separators.
_FORBIDDEN: Final = frozenset('/\\:*?"<>|\uff0e\u2215\u2216\ufffd\ufeff')
_NAME_BYTES_MAX: Final = 255


@routes.get("/slots", query=("fail_on_no_slot", "queue"))
async def slots(request: Request) -> Response:
    """llama-server's array. The header X-Queue-Length and `?queue=1` are ours: who waits."""
    host, completions = host_of(request), completions_of(request)
    if not host.settings.slots:
        raise not_supported("This server does not support slots endpoint. Start it with `--slots`")
    if request.query_params.get("fail_on_no_slot") and completions.slots.n_idle == 0:
        raise unavailable("no slot available")
    engine_slots = host.engine.slots
    items = completions.slots.to_json(
        host.engine.model.n_ctx, engine_slots.n_cells(), engine_slots.n_cells_shared()
    )
    body: Any = items
    if request.query_params.get("queue"):
        body = {"slots": items, "queue": _queue(completions.admission)}
    headers = {"X-Queue-Length": str(completions.admission.n_waiting)}
    return Response(orjson.dumps(body), media_type=JSON_TYPE, headers=headers)


def _queue(admission: Admission) -> list[dict[str, Any]]:
    return [
        {
            "position": position,
            "n_prompt_tokens": ticket.n_prompt,
            "id_slot": ticket.request.wanted,
            "priority": ticket.request.priority,
            # Without keys a client is known by its address, which is nobody's business.
            "api_key_index": client if isinstance(client := ticket.request.client, int) else 0,
        }
        for position, ticket in enumerate(admission.waiting(), 1)
    ]


@routes.post("/slots/{slot}", query=("action",))
async def act(request: Request) -> Response:
    """Save a slot's state to a file, restore or erase it; waits until the slot is idle."""
    host, slot = host_of(request), request.path_params["slot"]
    folder = host.settings.slot_save_path
    if folder is None:
        raise not_supported(
            "This server does not support slots action. Start it with `--slot-save-path`"
        )
    number = _slot_number(slot, host.settings.n_slots)
    action = request.query_params.get("action")
    if action not in ("save", "restore", "erase"):
        raise invalid("Invalid action", param="action")
    try:
        if action == "erase":
            n_erased = await host.engine.slots.erase(number)
            body: dict[str, Any] = {"id_slot": number, "n_erased": n_erased}
        else:
            body = await _transfer(request, host, folder, number, is_save=action == "save")
    except SlotNameError as error:
        raise invalid(f"Unable to save slot: {error}", param="filename") from error
    except SlotFileError as error:
        if action == "save":
            raise server_fault(f"Unable to save slot: {error}") from error
        raise invalid(f"Unable to restore slot: {error}") from error
    except EngineBusy as error:
        raise unavailable(str(error)) from error
    except EngineError as error:
        raise server_fault(str(error)) from error
    return Response(orjson.dumps(body), media_type=JSON_TYPE)


def _slot_number(text: str, n_slots: int) -> int:
    digits = text.lstrip("0") or "0"
    # The length first: Python refuses to read thousands of digits.
    is_short = text.isascii() and text.isdecimal() and len(digits) <= len(str(n_slots))
    if not is_short or int(digits) >= n_slots:
        raise invalid("Invalid slot ID")
    return int(digits)


async def _transfer(
    request: Request, host: ModelHost, folder: Path, slot: int, *, is_save: bool
) -> dict[str, Any]:
    name = _file_name(await read_object(request))
    engine_slots = host.engine.slots
    transfer = (
        await engine_slots.save(slot, folder, name)
        if is_save
        else await engine_slots.restore(
            slot, folder, name, host.lora_scales, cache_domain(client_key.get())
        )
    )
    done, moved, ms = (
        ("n_saved", "n_written", "save_ms") if is_save else ("n_restored", "n_read", "restore_ms")
    )
    return {
        "id_slot": slot,
        "filename": name,
        done: transfer.n_tokens,
        moved: transfer.n_bytes,
        "timings": {ms: transfer.elapsed_ms},
    }


def _file_name(body: dict[str, Any]) -> str:
    name = body.get("filename")
    if not isinstance(name, str):
        wrong = "is required" if name is None else f"type must be string, but is {json_type(name)}"
        raise invalid(f"Field 'filename': {wrong}", param="filename")
    if not is_file_name(name):
        raise ApiError(400, "invalid_request_error", "Invalid filename", param="filename")
    return name


def is_file_name(name: str) -> bool:
    """Whether a name has no path and no system reads it as another one."""
    try:
        n_bytes = len(name.encode())
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return (
        0 < n_bytes <= _NAME_BYTES_MAX
        and not any(c in _FORBIDDEN or unicodedata.category(c) == "Cc" for c in name)
        and not name.startswith((" ", ".unpaced-"))
        and not name.endswith((" ", "."))
        and ".." not in name
    )
