"""A build with Vulkan: a model on whatever device there is, Mesa's software driver if nothing else.

`make build PROFILE=vulkan` first; Debian's mesa-vulkan-drivers has the driver.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine_ext.base.build_info import read_build_info
from tests.support.server import Server, serving

pytestmark = pytest.mark.skipif(
    read_build_info().gpu != "Vulkan", reason="llama.cpp is built without Vulkan"
)

# llama.cpp takes no software driver by itself.
FIRST_DEVICE = {"GGML_VK_VISIBLE_DEVICES": "0"}
GREEDY: dict[str, Any] = {"n_predict": 24, "temperature": 0, "return_tokens": True}
PROMPTS = ("Once upon a time", "The fox", "On a cold morning")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # A software driver compiles the kernels with the first request, half a minute of CPU.
    patient = ("--stall-timeout", "280")
    with serving("-np", "2", "-c", "1024", *patient, env=FIRST_DEVICE) as running:
        running.client.timeout = httpx.Timeout(280)
        yield running


def test_the_model_lies_on_the_device(server: Server) -> None:
    memory = server.client.get("/props").json()["unpaced"]["decode_loop"]["memory_bytes"]
    on_device = memory["Vulkan0"]
    assert on_device["weights"] > 0.9 * sum(use["weights"] for use in memory.values())
    assert on_device["kv"] > 0
    line = next(line for line in server.log.read_text().splitlines() if "weights=" in line)
    assert "Vulkan0" in line


def test_the_host_drives_it_and_says_why(server: Server) -> None:
    loop = server.client.get("/props").json()["unpaced"]["decode_loop"]
    assert loop["loop"] == "host"
    assert loop["reason"].endswith("this build's GPU is Vulkan's")
    assert loop["reason"] in server.log.read_text()


def test_its_tokens_are_those_of_the_cpu(server: Server) -> None:
    with serving("-np", "2", "-c", "1024", "-ngl", "0") as other:
        for prompt in PROMPTS:
            ours, theirs = (
                each.complete(prompt=prompt, **GREEDY)["tokens"] for each in (server, other)
            )
            # Another order of sums: from a near tie on the two may go apart.
            assert ours[:8] == theirs[:8], prompt


def test_both_slots_at_once(server: Server) -> None:
    answers = server.complete(prompt=list(PROMPTS[:2]), **GREEDY)
    alone = [server.complete(prompt=prompt, **GREEDY)["content"] for prompt in PROMPTS[:2]]
    assert [answer["content"] for answer in answers] == alone
