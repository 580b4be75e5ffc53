"""Context shifts under the device loop beside llama-server: the same texts over several shifts.

UNPACED_PEER names a folder with llama-server of the pinned commit (tests/bench/rig/peer.py); the
model is the demo model, or the GGUF that UNPACED_GPU_TEST_MODEL names.
"""

import os
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.bench.rig.peer import Peer
from tests.bench.rig.server_process import free_port, running, unpaced_command
from tests.gpu.test_device_loop import MODEL, has_device

PEER = os.environ.get("UNPACED_PEER", "")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
    pytest.mark.skipif(PEER == "", reason="UNPACED_PEER is not set"),
]

N_CTX: Final = 512
N_TOKENS: Final = 1100  # several shifts, whatever a shift keeps
FLAGS: Final = ("-c", str(N_CTX), "--context-shift", "-fa", "on", "-ngl", "99")
PROMPT: Final = "Once upon a time there was a little girl who lived in a house by the sea. " * 4
GREEDY: Final[dict[str, Any]] = {"temperature": 0}
SEEDED: Final[dict[str, Any]] = {"seed": 1, "temperature": 0.8}
PENALTIES: Final[dict[str, Any]] = {"seed": 2, "repeat_penalty": 1.1, "repeat_last_n": 300}
CASES: Final[dict[str, dict[str, Any]]] = {
    "greedy": GREEDY | {"n_keep": 0},
    "greedy, some is kept": GREEDY | {"n_keep": 50},
    "seeded": SEEDED | {"n_keep": 0},
    "seeded, the prompt is kept": SEEDED | {"n_keep": -1},
    "seeded, a shift every 10 tokens": SEEDED | {"n_keep": 20, "n_discard": 10},
    "penalties, some is kept": PENALTIES | {"n_keep": 50},
}

# The answers' tokens.
Texts = dict[str, list[int]]


def texts_of(command: list[str], port: int, env: dict[str, str], log: Path) -> Texts:
    """Every case's tokens from one server."""
    texts: Texts = {}
    with (
        running(command, env, port, log),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as client,
    ):
        for case, fields in CASES.items():
            body = {
                "prompt": PROMPT,
                "n_predict": N_TOKENS,
                "ignore_eos": True,
                "cache_prompt": False,
                "return_tokens": True,
            }
            answer = client.post("/completion", json=body | fields)
            assert answer.status_code == 200, answer.text
            texts[case] = answer.json()["tokens"]
        if "unpaced" in client.get("/metrics").text:
            n_device = metric(client, "unpaced_engine_tokens_device_total")
            assert n_device > 0.95 * N_TOKENS * len(texts)
    return texts


def metric(client: httpx.Client, name: str) -> float:
    """A sample of /metrics."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    raise KeyError(name)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """llama-server's."""
    scratch = tmp_path_factory.mktemp("peer")
    peer = Peer(Path(PEER), scratch / "shim")
    port = free_port()
    command = peer.server_command(port, MODEL, *FLAGS)
    return texts_of(command, port, peer.env(), scratch / "log")


def test_the_peer_shifts(expected: Texts) -> None:
    assert {len(tokens) for tokens in expected.values()} == {N_TOKENS}
    # What a shift keeps shows in the text.
    assert expected["greedy"] != expected["greedy, some is kept"]
    assert expected["seeded"] != expected["seeded, the prompt is kept"]


@pytest.mark.parametrize("loop", ["ahead", "device"])
def test_every_shift_gives_llama_servers_tokens(loop: str, expected: Texts, tmp_path: Path) -> None:
    port = free_port()
    command = unpaced_command(port, MODEL, "-np", "1", *FLAGS, "--decode-loop", loop)
    found = texts_of(command, port, {}, tmp_path / "log")
    different = {
        case: next((i for i, (a, b) in enumerate(zip(*both, strict=False)) if a != b), -1)
        for case in expected
        if found[case] != expected[case] and (both := (found[case], expected[case]))
    }
    assert different == {}
