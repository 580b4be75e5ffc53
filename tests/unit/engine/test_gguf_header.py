"""The head of a GGUF file, read in a process: sound files, cut ones, hostile ones."""

import os
import random
import struct
import time
from pathlib import Path

import gguf
import pytest

from engine_ext import ModelLoadError, read_gguf_header
from tests.support.gguf_files import copy_with_keys
from tests.support.llama.vocabulary_file import vocabulary_keys
from unpaced.settings.model import DEMO_MODEL


def test_it_says_what_gguf_s_own_library_says(tmp_path: Path) -> None:
    kinds = gguf.GGUFValueType
    path = copy_with_keys(
        tmp_path / "keys.gguf",
        test__text=(kinds.STRING, "é\x1b[31m"),
        test__yes=(kinds.BOOL, True),
        test__small=(kinds.INT8, -3),
        test__large=(kinds.UINT64, 2**63),
        test__real=(kinds.FLOAT64, 0.1),
    )
    header = read_gguf_header(path)
    reader = gguf.GGUFReader(path)
    assert header.n_parameters == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert sum(header.tensors.values()) == len(reader.tensors)
    assert header.n_bytes == path.stat().st_size
    assert header.n_bytes_missing == 0
    for field in reader.fields.values():
        if field.name.startswith("GGUF."):
            continue
        value, contents = header.metadata[field.name], field.contents()
        if isinstance(contents, list):
            assert value == {"n": len(contents), "first": contents[:8]}
        else:
            assert value == contents, field.name
    assert header.metadata["test.large"] == 2**63


def test_arrays_are_gguf_s_own_library_s() -> None:
    fields = gguf.GGUFReader(DEMO_MODEL).fields.values()
    expected = {f.name: (f.types[0], f.contents()) for f in fields if "tokenizer." in f.name}
    assert any(kind == gguf.GGUFValueType.ARRAY for kind, _ in expected.values())
    assert vocabulary_keys(DEMO_MODEL) == expected


def test_a_cut_file_is_shown_and_said_to_be_too_short(tmp_path: Path) -> None:
    data = DEMO_MODEL.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[:-1000])
    assert read_gguf_header(path).n_bytes_missing == 1000


def test_no_file_crashes_or_hangs_who_asks(tmp_path: Path) -> None:
    """Cut anywhere in its head, bytes changed, lengths beyond everything."""
    data = bytearray(DEMO_MODEL.read_bytes()[:40_000])
    generator = random.Random(1)
    path = tmp_path / "hostile.gguf"
    cases = [bytes(data[: generator.randrange(4, len(data))]) for _ in range(4)]
    for _ in range(8):
        changed = bytearray(data)
        for _ in range(20):
            changed[generator.randrange(8, len(changed))] = generator.randrange(256)
        cases.append(bytes(changed))
    for n_tensors, n_keys in ((2**63 - 1, 1), (0, 2**63 - 1), (2**40, 2**40)):
        cases.append(b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + bytes(64))
    # A key of 2**62 bytes.
    cases.append(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + bytes(64))
    n_refused = 0
    for case in cases:
        path.write_bytes(case)
        started = time.monotonic()
        try:
            read_gguf_header(path, limit_s=20)
        except ModelLoadError as error:
            n_refused += 1
            assert "hostile.gguf" in str(error)
        assert time.monotonic() - started < 25
    assert n_refused >= 8


def test_a_file_that_cannot_be_read_in_time_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"could not be read in 0\.001 s"):
        read_gguf_header(DEMO_MODEL, limit_s=0.001)
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelLoadError, match="not a regular file"):
        read_gguf_header(tmp_path / "pipe.gguf")
    with pytest.raises(ModelLoadError, match=r"00002-of-00002\.gguf: no such file"):
        first = tmp_path / "m-00001-of-00002.gguf"
        first.write_bytes(DEMO_MODEL.read_bytes())
        read_gguf_header(first)
