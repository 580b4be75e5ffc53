"""`unpaced show`: what a model's file says of itself, without loading it."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from unpaced.cli.models.model_word import MODEL_HELP, local_model
from unpaced.cli.models.sizes import show_bytes, show_count
from unpaced.cli.terminal_text import printable, printable_line

if TYPE_CHECKING:
    from engine_ext import GgufHeader

_N_VALUE: Final = 100
# What is shown -> its key, where {} is the architecture.
_ROWS: Final = (
    ("context", "{}.context_length"),
    ("layers", "{}.block_count"),
    ("embedding", "{}.embedding_length"),
    ("heads", "{}.attention.head_count"),
    ("KV heads", "{}.attention.head_count_kv"),
    ("experts", "{}.expert_count"),
    ("experts used", "{}.expert_used_count"),
    ("tokenizer", "tokenizer.ggml.model"),
    ("license", "general.license"),
)


def show_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced show",
        description="Show what a model's file says of itself. Nothing is loaded or downloaded.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--all", action="store_true", help="every key of the metadata, too")
    form.add_argument("--template", action="store_true", help="the chat template alone")
    form.add_argument("--json", action="store_true", help="everything, as a JSON object")
    return parser


def show(arguments: Sequence[str]) -> int:
    """0, or 1 with the reason on standard error."""
    from engine_ext import ModelLoadError, read_gguf_header
    from unpaced.download.transfer import DownloadError

    given = show_parser().parse_args(arguments)
    try:
        path = local_model(given.model)
        header = read_gguf_header(path)
    except (DownloadError, ModelLoadError) as error:
        print(f"unpaced show: error: {printable_line(str(error))}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps({"path": str(path)} | dataclasses.asdict(header), indent=2))
        return 0
    if given.template:
        return _show_template(header)
    for name, value in _summary(path, header):
        print(f"{name:<13} {printable_line(value)}".rstrip())
    if given.all:
        print()
        for key, value in sorted(header.metadata.items()):
            print(f"{printable_line(key)} = {_short(value)}")
    return 0


def _show_template(header: "GgufHeader") -> int:
    template = header.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        print("unpaced show: error: the model has no chat template", file=sys.stderr)
        return 1
    print(printable(template))
    return 0


def _summary(path: Path, header: "GgufHeader") -> Iterator[tuple[str, str]]:
    metadata = header.metadata
    architecture = str(metadata.get("general.architecture", "unknown"))
    yield "file", str(path)
    yield "name", str(metadata.get("general.name", "not said"))
    yield "architecture", architecture
    yield "parameters", f"{show_count(header.n_parameters)} ({header.n_parameters:,})"
    yield "size", show_bytes(header.n_bytes)
    types = sorted(header.tensors.items(), key=lambda item: -item[1])
    yield "tensors", ", ".join(f"{n} {name}" for name, n in types)
    for name, key in _ROWS:
        if (value := metadata.get(key.replace("{}", architecture))) is not None:
            yield name, _short(value)
    if isinstance(tokens := metadata.get("tokenizer.ggml.tokens"), dict):
        yield "vocabulary", f"{tokens['n']:,} tokens"
    has_template = "tokenizer.chat_template" in metadata
    yield "chat template", "yes (--template shows it)" if has_template else "no"
    if header.n_bytes_missing:
        yield "damaged", f"the file is too short by {show_bytes(header.n_bytes_missing)}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        first = ", ".join(_short(item) for item in value["first"])
        more = ", ..." if value["n"] > len(value["first"]) else ""
        return f"[{first}{more}] ({value['n']:,})"
    text = printable_line(str(value))
    return text if len(text) <= _N_VALUE else f"{text[:_N_VALUE]}... ({len(text):,} characters)"
