"""The sources that a wheel is built from, apart from the checkout, and its name and needs."""

import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from engine_ext.llama_build.errors import BuildError

_PARTS = ("LICENSE", "README.md", "csrc", "engine_ext", "pyproject.toml", "unpaced")
_LEFT = shutil.ignore_patterns("__pycache__", "*.so", "*.py[cod]", "training")


@dataclass(frozen=True, slots=True)
class Stage:
    """A CUDA wheel differs from the CPU's: a local version of its own, and NVIDIA's packages."""

    folder: Path
    has_cuda: bool

    @classmethod
    def make(cls, root: Path, folder: Path, *, has_cuda: bool) -> "Stage":
        """Copies what is needed. Raises BuildError if pyproject.toml has changed its form."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in _PARTS:
            part = root / name
            if part.is_dir():
                shutil.copytree(part, folder / name, ignore=_LEFT)
            else:
                shutil.copy2(part, folder / name)
        if has_cuda:
            _name_cuda(folder / "pyproject.toml")
        return cls(folder, has_cuda)


def _name_cuda(path: Path) -> None:
    text = path.read_text()
    # What the build's own group names is what the wheel's libraries were linked with.
    needs = tomllib.loads(text)["dependency-groups"]["cuda"]
    local = f"cu{re.search(r'==([0-9]+)', needs[0])[1]}"  # type: ignore[index]
    for pattern, replacement in (
        (r'^version = "([^"+]+)"$', rf'version = "\1+{local}"'),
        (r"^dependencies = \[$", "dependencies = [\n" + "".join(f'  "{n}",\n' for n in needs)),
    ):
        text, n_found = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if n_found != 1:
            raise BuildError(f"pyproject.toml has {n_found} lines like {pattern!r}, not one.")
    path.write_text(text)
