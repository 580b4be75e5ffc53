"""Parts of llama.cpp's source tree that tests read: vocabularies, templates, grammars, its tests.

They come from the source distribution that the build pins; no copy of them is kept here.
"""

import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Final

from engine_ext.llama_build import pins
from engine_ext.llama_build.source import Source
from tests.support.one_at_a_time import one_at_a_time

BUILD_FOLDER: Final = Path(__file__).resolve().parents[2] / ".build"
_PARTS: Final = ("models/", "tools/server/tests/", "grammars/", "common/sampling.cpp")


@one_at_a_time
def llama_source() -> Path:
    """llama.cpp's folder with the parts listed above, unpacked once.

    Raises: engine_ext.llama_build.errors.BuildError if the archive is not there and not to be had.
    """
    folder = BUILD_FOLDER / "peer" / f"llama.cpp-{pins.SDIST_SHA256[:12]}"
    if all((folder / part).exists() for part in _PARTS):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(Source(BUILD_FOLDER).archive()) as members:
        if hasattr(tarfile, "data_filter"):  # 3.11.0 to 3.11.3 have no filters
            members.extraction_filter = tarfile.data_filter
        for member in members:
            _, _, member.name = member.name.partition("/vendor/llama.cpp/")
            if member.name.startswith(_PARTS):
                members.extract(member, partial)
    partial.rename(folder)
    return folder


def vocabulary(name: str) -> Path:
    """A GGUF file that holds a vocabulary and nothing else; `name` such as "llama-spm"."""
    path = llama_source() / PurePosixPath(f"models/ggml-vocab-{name}.gguf")
    if not path.is_file():
        raise FileNotFoundError(path)
    return path


def source_text(path: str) -> str:
    """One of its C++ files, such as "common/sampling.cpp"."""
    return (llama_source() / path).read_text()


def grammar(name: str) -> str:
    """The text of one of llama.cpp's examples of GBNF, such as "json"."""
    return (llama_source() / f"grammars/{name}.gbnf").read_text()
