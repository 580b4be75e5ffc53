"""GGUF files made for a test out of the demo model."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

from unpaced.settings.model import DEMO_MODEL


def copy_with_keys(target: Path, **keys: tuple[Any, Any]) -> Path:
    """The demo model with further keys: name with "__" for "." -> (gguf.GGUFValueType, value)."""
    reader = gguf.GGUFReader(DEMO_MODEL)
    writer = gguf.GGUFWriter(target, "llama")
    metadata = {
        name.replace("__", "."): MetadataDetails(kind, value)
        for name, (kind, value) in keys.items()
    }
    copy_with_new_metadata(reader, writer, metadata, [])
    return target


def make_lora(target: Path, seed: int = 1, strength: float = 1.0) -> Path:
    """A random LoRA adapter of rank 4 for the demo model's query projections."""
    reader = gguf.GGUFReader(DEMO_MODEL)
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 4.0)
    for tensor in reader.tensors:
        if tensor.name.endswith("attn_q.weight"):
            n_in, n_out = (int(n) for n in tensor.shape)
            a = random.standard_normal((4, n_in)) * strength
            b = random.standard_normal((n_out, 4)) * strength
            writer.add_tensor(f"{tensor.name}.lora_a", a.astype(np.float32))
            writer.add_tensor(f"{tensor.name}.lora_b", b.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def split_model(folder: Path, n_parts: int = 3) -> Path:
    """The demo model in several files; returns the first, which is the one to load."""
    reader = gguf.GGUFReader(DEMO_MODEL)
    per_part = -(-len(reader.tensors) // n_parts)
    names = [folder / f"demo-{i + 1:05}-of-{n_parts:05}.gguf" for i in range(n_parts)]
    for i, path in enumerate(names):
        writer = gguf.GGUFWriter(path, "llama")
        if i == 0:
            _copy_keys(reader, writer)
        writer.add_uint16("split.no", i)
        writer.add_uint16("split.count", n_parts)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[i * per_part : (i + 1) * per_part]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return names[0]


def _copy_keys(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == gguf.Keys.General.ARCHITECTURE:
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub_type)
