"""Train the built-in demo model and write it as GGUF: `python -m engine_ext.models.train_demo`.

Everything it learns from is generated here (training/story.py and training/chat.py); no data is
read. It needs the extra `train` (PyTorch, gguf), and for the checks at the end the llama_cpp build
that the server uses.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import time
from pathlib import Path

HERE = Path(__file__).parent
MAX_BYTES = 4_000_000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m engine_ext.models.train_demo",
        description="Train the built-in demo model on generated stories and write it as GGUF.",
        epilog="A full run sees 7 million tokens: about 11 minutes on two free CPU cores with "
        "bfloat16 arithmetic. The result depends on the seed, and in its last digits on PyTorch's "
        "version, the CPU and the number of threads; see docs/demo-model.md.",
    )
    parser.add_argument("--out", type=Path, default=HERE / "demo.gguf", help="the file to write")
    parser.add_argument("--steps", type=int, default=2600, help="optimizer steps (%(default)s)")
    parser.add_argument("--seed", type=int, default=2, help="of data and weights (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (%(default)s)")
    parser.add_argument(
        "--float32", action="store_true", help="slower, for CPUs without bfloat16 arithmetic"
    )
    parser.add_argument("--samples", type=Path, help="write twenty samples to this Markdown file")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    import torch

    from .training.corpus import train_tokenizer
    from .training.export import write_gguf
    from .training.fit import Recipe, fit
    from .training.llama_check import LlamaModel
    from .training.network import Shape
    from .training.verify import check_logits, check_tokens, write_samples

    torch.set_num_threads(arguments.threads)
    started = time.monotonic()
    tokenizer = train_tokenizer(arguments.seed)
    recipe = Recipe(n_steps=arguments.steps, seed=arguments.seed, bfloat16=not arguments.float32)
    network, loss = fit(Shape(tokenizer.n_vocab), recipe, tokenizer)
    print(
        f"trained in {time.monotonic() - started:.0f} s, loss on fresh text {loss:.4f} nats/token"
    )

    write_gguf(arguments.out, network, tokenizer, seed=arguments.seed)
    data = arguments.out.read_bytes()
    if len(data) > MAX_BYTES:
        raise SystemExit(f"{arguments.out} has {len(data)} bytes, more than {MAX_BYTES}")
    n_params = sum(weights.numel() for weights in network.parameters())
    print(f"{arguments.out}: {len(data)} bytes, {n_params} parameters")
    print(f"sha256 {hashlib.sha256(data).hexdigest()}")

    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)  # or it prints every tensor
    model = LlamaModel(arguments.out)
    print(f"tokens equal to llama.cpp's on {check_tokens(model, tokenizer)} texts")
    print(f"logits against llama.cpp's: {check_logits(model, network, tokenizer)}")
    if arguments.samples:
        write_samples(arguments.samples, model, ["Once upon a time", ""], 20)
    model.close()


if __name__ == "__main__":
    main()
