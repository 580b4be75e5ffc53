"""Which code a CUDA build runs on this machine's card: the card's own, or some PTX that the driver
compiles.

    python -m tests.gpu.card_code [--expect native | 7.5]

prints what each library holds, what the driver takes of it, and what the engine's loop reports of
its kernels. With --expect the exit status is 1 if any of them is another one: the log of a run of
tests/gpu with PTX of an older card alone begins with it.
"""

import argparse
import asyncio
import importlib.util
import mmap
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from engine_ext import Card, Engine, EngineConfig

DEMO_MODEL = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"

# A fat binary: a header, then entries with headers of their own (cuobjdump lists the same).
_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")  # magic, version, size of the header, size of what follows
_ENTRY = struct.Struct("<HHIQ")  # kind, version, size of the header, size of what follows
_ARCHITECTURE_AT = 28
_PTX, _BINARY = 1, 2


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """Architectures as numbers, 75 for compute capability 7.5."""

    ptx: frozenset[int]
    binary: frozenset[int]

    def taken_by(self, card: int) -> str:
        """What the driver of such a card takes: native 8.6, or PTX 7.5, or nothing."""
        own = [a for a in self.binary if a // 10 == card // 10 and a <= card]
        if own:
            return f"native {capability(max(own))}"
        older = [a for a in self.ptx if a <= card]
        return f"PTX {capability(max(older))}" if older else "nothing"

    def __str__(self) -> str:
        binary = " ".join(map(capability, sorted(self.binary))) or "none"
        ptx = " ".join(map(capability, sorted(self.ptx))) or "none"
        return f"instructions for {binary}; PTX of {ptx}"


def capability(architecture: int) -> str:
    """9.0 of 90."""
    return f"{architecture // 10}.{architecture % 10}"


def architecture(capability: str) -> int:
    """90 of 9.0."""
    return int(capability.replace(".", ""))


def code_of(data: bytes | mmap.mmap) -> LibraryCode:
    """Of a library or an object file, by the fat binaries that it holds."""
    entries = list(_entries(data))
    return LibraryCode(
        frozenset(a for kind, a in entries if kind == _PTX),
        frozenset(a for kind, a in entries if kind == _BINARY),
    )


def _entries(data: bytes | mmap.mmap) -> Iterator[tuple[int, int]]:
    """Kind and architecture."""
    at = data.find(_MAGIC)
    while at >= 0 and at + _HEADER.size <= len(data):
        _, version, header_size, size = _HEADER.unpack_from(data, at)
        end = at + header_size + size
        if version != 1 or header_size != _HEADER.size or end > len(data):
            at = data.find(_MAGIC, at + 1)  # these bytes are something else
            continue
        entry = at + header_size
        while entry + _ARCHITECTURE_AT + 4 <= end:
            kind, _, entry_header, entry_size = _ENTRY.unpack_from(data, entry)
            yield kind, struct.unpack_from("<I", data, entry + _ARCHITECTURE_AT)[0]
            entry += entry_header + entry_size
        at = data.find(_MAGIC, max(end, at + 1))


def libraries() -> dict[str, LibraryCode]:
    """The installed build's libraries with device code."""
    found = {}
    for package, pattern in (("llama_cpp", "lib/libggml-cuda.so"), ("engine_ext", "_native*.so")):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for path in sorted(Path(folder).glob(pattern)):
                with path.open("rb") as file:
                    code = code_of(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                if code.ptx or code.binary:
                    found[path.name] = code
    return found


async def running_card() -> tuple[Card | None, str]:
    """What the loop reports, and why there is none."""
    async with Engine(EngineConfig(model_path=DEMO_MODEL, n_ctx=1024, n_threads=1)) as engine:
        return engine.decode_loop.card, engine.decode_loop.reason


def paths_of(card: Card, held: dict[str, LibraryCode]) -> dict[str, str]:
    """What runs on the card: of libraries by what they hold, of the loop by the driver's word."""
    number = architecture(card.compute_capability)
    # The extension also holds CUDA's device runtime, which has instructions for every card.
    paths = {
        name: code.taken_by(number) for name, code in held.items() if not name.startswith("_native")
    }
    is_native = card.code_from == card.code_for
    paths["the loop's kernels"] = ("native " if is_native else "PTX ") + card.code_from
    return paths


def is_expected(path: str, expected: str) -> bool:
    """Whether it is `native`, or PTX of this compute capability."""
    return path.startswith("native") if expected == "native" else path == f"PTX {expected}"


def main() -> int:
    """0, or 1 where something else runs than was expected, or nothing does."""
    parser = argparse.ArgumentParser(description="Which code this build runs on this card.")
    parser.add_argument("--expect", help="native, or a compute capability such as 7.5")
    expected = parser.parse_args().expect
    held = libraries()
    for name, code in held.items():
        print(f"{name}: {code}")
    card, reason = asyncio.run(running_card())
    if card is None:
        print(f"the loop does not run on a card: {reason}")
        return 1
    for name, value in asdict(card).items():
        print(f"  {name}: {value}")
    paths = paths_of(card, held)
    for name, path in paths.items():
        print(f"{name}: {path}")
    if expected is None:
        return 0
    wrong = [name for name, path in paths.items() if not is_expected(path, expected)]
    print(f"NOT {expected}: {', '.join(wrong)}" if wrong else f"all of it: {expected}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
