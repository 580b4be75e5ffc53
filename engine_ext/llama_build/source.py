"""The unpacked and patched source distribution; our extension takes llama.cpp's headers from it."""

import hashlib
import json
import re
import shutil
import sys
import tarfile
from pathlib import Path

from . import pins
from .errors import BuildError
from .inputs import Inputs
from .licenses import license_text
from .step import relative, run, say

# Marks the unpacked tree: another pin or another patch unpacks it anew.
_STATE = hashlib.sha256(repr((pins.SDIST_SHA256, pins.NOT_UNPACKED, pins.PATCHES)).encode())


class Source:
    """`.build/sdist` holds the archive, `.build/src` the tree."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.tree = base / "src" / f"llama_cpp_python-{pins.VERSION}"
        self._mark = self.tree / "unpaced_state"

    @property
    def ready(self) -> bool:
        return self._mark.is_file() and self._mark.read_text() == _STATE.hexdigest()

    def fetch(self) -> None:
        """Fetches and unpacks what is not there. Raises BuildError."""
        if not self.ready:
            self._unpack(self.archive())

    def write_profile(self, inputs: Inputs) -> None:
        """Version and description differ from profile to profile: written before every build."""
        init = self.tree / "llama_cpp" / "__init__.py"
        version = f'__version__ = "{inputs.profile.version}"'
        init.write_text(re.sub(r'__version__ = "[^"]*"', version, init.read_text()))
        (self.tree / pins.INFO_FILE).write_text(json.dumps(inputs.info(), indent=1) + "\n")
        (self.tree / pins.LICENSE_FILE).write_text(license_text(self.tree / "vendor" / "llama.cpp"))

    def archive(self) -> Path:
        """The pinned archive, fetched if it is not there. Raises BuildError."""
        folder = self._base / "sdist"
        archive = folder / f"llama_cpp_python-{pins.VERSION}.tar.gz"
        if _sha256(archive) == pins.SDIST_SHA256:
            return archive
        say("fetch", f"{archive.name}, 77 MB")
        archive.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        # With the hash in the requirement pip checks the archive before it runs anything of it.
        requirement = folder / "requirement.txt"
        requirement.write_text(
            f"llama-cpp-python=={pins.VERSION} --hash=sha256:{pins.SDIST_SHA256}\n"
        )
        options = ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--no-cache-dir"]
        command = [sys.executable, "-P", "-m", "pip", "download", *options]
        run(
            [*command, "--dest", str(folder), "--requirement", str(requirement)],
            what="fetching the source distribution with pip",
            cwd=folder,
            log=self._base / "logs" / "llama-fetch.log",
            env={},
        )
        if (actual := _sha256(archive)) != pins.SDIST_SHA256:
            raise BuildError(f"{archive.name}: sha256 {actual}, pinned is {pins.SDIST_SHA256}.")
        return archive

    def _unpack(self, archive: Path) -> None:
        say("unpack", f"into {relative(self.tree)}")
        partial = self.tree.with_name(self.tree.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(archive) as members:
            # A second guard beside the pinned hash; 3.11.0 to 3.11.3 have no filters.
            if hasattr(tarfile, "data_filter"):
                members.extraction_filter = tarfile.data_filter
            for member in members:
                member.name = member.name.partition("/")[2]
                if member.name and not re.match(pins.NOT_UNPACKED, member.name):
                    members.extract(member, partial)
        for file, pattern, replacement in pins.PATCHES:
            text, n_found = re.subn(pattern, replacement, (partial / file).read_text())
            if n_found != 1:
                raise BuildError(f"The patch for {file} fits in {n_found} places instead of one.")
            (partial / file).write_text(text)
        (partial / self._mark.name).write_text(_STATE.hexdigest())
        shutil.rmtree(self.tree, ignore_errors=True)
        partial.rename(self.tree)


def _sha256(path: Path) -> str:
    if not path.is_file():
        return "of no file"
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
