"""`vllm bench serve`'s request functions, loaded from the one file of vLLM that holds them."""

import asyncio
import importlib.util
import os
import sys
from typing import Any

import aiohttp

N_TOKENS = 24


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("vllm_requests", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


async def run(url: str, file: str) -> None:
    vllm = load(file)
    functions = {
        "/v1/completions": vllm.async_request_openai_completions,
        "/v1/chat/completions": vllm.async_request_openai_chat_completions,
    }
    async with aiohttp.ClientSession() as session:
        for path, function in functions.items():
            asked = vllm.RequestFuncInput(
                prompt="Once upon a time",
                api_url=url + path,
                prompt_len=5,
                output_len=N_TOKENS,
                model="demo",
                ignore_eos=True,
                request_id="bench-1",
                extra_body={"repetition_penalty": 1.0},
            )
            runs = await asyncio.gather(*(function(asked, session) for _ in range(4)))
            for result in runs:
                assert result.success, result.error
                assert result.generated_text
                assert result.output_tokens == N_TOKENS, result.output_tokens
                assert 0 < result.ttft < result.latency
                assert len(result.itl) >= N_TOKENS // 2


if __name__ == "__main__":
    os.environ["OPENAI_API_KEY"] = sys.argv[2]
    asyncio.run(run(sys.argv[1], sys.argv[3]))
