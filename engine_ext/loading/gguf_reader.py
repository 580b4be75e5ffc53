"""A process that reads the head of GGUF files with llama.cpp's own reader and writes it as JSON.

`python -m engine_ext.loading.gguf_reader LIBRARY FILE...`: libggml-base, then the parts of one
model. Exit status 1 with a sentence on standard error where a file cannot be read. Files come from
strangers: whoever starts this process gives it a limit of time and survives its end
(`engine_ext.loading.gguf_header`).
"""

import ctypes
import json
import os
import resource
import sys
from collections import Counter
from typing import Any, Final

_MEMORY_BYTES: Final = 4 << 30
_N_SHOWN: Final = 8
_N_TEXT: Final = 1 << 20
_STRING, _ARRAY, _BOOL = 8, 9, 7
# Source: llama.cpp 0c1e57098 ggml/include/gguf.h (enum gguf_type).
_NUMBERS: Final[dict[int, Any]] = {
    0: ctypes.c_uint8,
    1: ctypes.c_int8,
    2: ctypes.c_uint16,
    3: ctypes.c_int16,
    4: ctypes.c_uint32,
    5: ctypes.c_int32,
    6: ctypes.c_float,
    _BOOL: ctypes.c_bool,
    10: ctypes.c_uint64,
    11: ctypes.c_int64,
    12: ctypes.c_double,
}
_VALUE: Final = ctypes.c_void_p
_INDEX: Final = ctypes.c_int64
# Function -> result, arguments after the file's context.
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "gguf_get_version": (ctypes.c_uint32, ()),
    "gguf_get_data_offset": (ctypes.c_size_t, ()),
    "gguf_get_n_kv": (ctypes.c_int64, ()),
    "gguf_get_key": (ctypes.c_char_p, (_INDEX,)),
    "gguf_get_kv_type": (ctypes.c_int, (_INDEX,)),
    "gguf_get_arr_type": (ctypes.c_int, (_INDEX,)),
    "gguf_get_arr_n": (ctypes.c_size_t, (_INDEX,)),
    "gguf_get_arr_data": (_VALUE, (_INDEX,)),
    "gguf_get_arr_str": (ctypes.c_char_p, (_INDEX, ctypes.c_size_t)),
    "gguf_get_val_data": (_VALUE, (_INDEX,)),
    "gguf_get_val_str": (ctypes.c_char_p, (_INDEX,)),
    "gguf_get_n_tensors": (ctypes.c_int64, ()),
    "gguf_get_tensor_type": (ctypes.c_int, (_INDEX,)),
    "gguf_get_tensor_size": (ctypes.c_size_t, (_INDEX,)),
}


class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


class GgufFile:
    """One open file. Raises: ValueError."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self._library = library
        library.gguf_init_from_file.restype = _VALUE
        library.gguf_init_from_file.argtypes = (ctypes.c_char_p, _InitParams)
        context = library.gguf_init_from_file(os.fsencode(path), _InitParams(True, None))
        if not context:
            raise ValueError(f"{path}: llama.cpp cannot read it as GGUF")
        self._context = ctypes.c_void_p(context)

    def ask(self, function: str, *arguments: int) -> Any:
        """What a function of gguf.h says of the file."""
        call = getattr(self._library, function)
        call.restype, types = _FUNCTIONS[function]
        call.argtypes = (_VALUE, *types)
        return call(self._context, *arguments)

    def keys(self) -> list[str]:
        """Names of the metadata, in the file's order."""
        n: int = self.ask("gguf_get_n_kv")
        return [_text(self.ask("gguf_get_key", i)) for i in range(n)]

    def metadata(self) -> dict[str, Any]:
        """Value by key; of arrays the length and how they begin."""
        return {key: self._value(i) for i, key in enumerate(self.keys())}

    def _value(self, index: int) -> Any:
        kind = self.ask("gguf_get_kv_type", index)
        if kind == _STRING:
            return _text(self.ask("gguf_get_val_str", index))
        if kind == _ARRAY:
            n = self.ask("gguf_get_arr_n", index)
            return {"n": n, "first": self.array(index, min(n, _N_SHOWN))}
        return _NUMBERS[kind].from_address(self.ask("gguf_get_val_data", index)).value

    def array(self, index: int, n: int) -> list[Any]:
        """The first `n` values, at most its length, of the key with this number: an array."""
        kind = self.ask("gguf_get_arr_type", index)
        if kind == _STRING:
            return [_text(self.ask("gguf_get_arr_str", index, i)) for i in range(n)]
        if n == 0:
            return []
        return list((_NUMBERS[kind] * n).from_address(self.ask("gguf_get_arr_data", index)))

    def tensors(self) -> tuple[Counter[str], int, int]:
        """Tensors by type, their parameters and their bytes."""
        counts, n_parameters, n_bytes = Counter[str](), 0, 0
        library = self._library
        library.ggml_type_name.restype = ctypes.c_char_p
        library.ggml_blck_size.restype = ctypes.c_int64
        library.ggml_type_size.restype = ctypes.c_size_t
        for i in range(self.ask("gguf_get_n_tensors")):
            kind = self.ask("gguf_get_tensor_type", i)
            size = self.ask("gguf_get_tensor_size", i)
            counts[_text(library.ggml_type_name(kind))] += 1
            n_parameters += size // library.ggml_type_size(kind) * library.ggml_blck_size(kind)
            n_bytes += size
        return counts, n_parameters, n_bytes


def read(library: str, paths: list[str]) -> dict[str, Any]:
    """What `GgufHeader` holds. Raises: ValueError, OSError."""
    files = [GgufFile(ctypes.CDLL(library), path) for path in paths]
    counts, n_parameters, n_missing = Counter[str](), 0, 0
    for path, file in zip(paths, files, strict=True):
        of_file, n, n_bytes = file.tensors()
        counts += of_file
        n_parameters += n
        n_missing += max(0, file.ask("gguf_get_data_offset") + n_bytes - os.path.getsize(path))
    return {
        "version": files[0].ask("gguf_get_version"),
        "metadata": files[0].metadata(),
        "tensors": counts,
        "n_parameters": n_parameters,
        "n_bytes": sum(map(os.path.getsize, paths)),
        "n_bytes_missing": n_missing,
    }


def _text(value: bytes | None) -> str:
    return (value or b"")[:_N_TEXT].decode(errors="replace")


def main() -> int:
    """Run the process."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        print(json.dumps(read(sys.argv[1], sys.argv[2:])))
    except (ValueError, OSError, MemoryError) as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
