"""Calls of our own Python functions, as the interpreter tells them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Hops:
    """Calls in order, and the objects they were made on."""

    calls: list[str] = field(default_factory=list)
    frames: list[FrameType] = field(default_factory=list)
    owners: dict[int, object] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """For sys.setprofile."""
        if event != "call" or (name := name_of(frame.f_code)) is None:
            return
        if any(known is frame for known in self.frames):  # a coroutine that goes on
            return
        self.frames.append(frame)
        self.calls.append(name)
        owner = frame.f_locals.get("self")
        if owner is not None:
            self.owners[id(owner)] = owner

    def tell(self, what: str) -> None:
        """One line."""
        classes = {type(owner).__name__ for owner in self.owners.values()}
        print(f"{what}: {len(self.calls)} calls, objects of {len(classes)} classes")


def name_of(code: CodeType) -> str | None:
    """`unpaced.http.body.read_json` of one of our functions; None of others'."""
    path = Path(code.co_filename)
    if "/unpaced/" not in code.co_filename and "/engine_ext/" not in code.co_filename:
        return None
    if not path.is_relative_to(ROOT) or code.co_name.endswith(("expr>", "comp>")):
        return None
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    is_ours = module.startswith(("unpaced.", "engine_ext."))
    return f"{module}.{code.co_qualname}" if is_ours else None


@contextmanager
def counted(hops: Hops) -> Iterator[None]:
    """What runs meanwhile is noted."""
    sys.setprofile(hops.note)
    try:
        yield
    finally:
        sys.setprofile(None)
