"""Build profiles: one TOML file each in `engine_ext/profiles`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from .errors import BuildError
from .pins import VERSION

PROFILES = Path(__file__).resolve().parents[1] / "profiles"

# Profiles of earlier versions that differed in nothing, on any card that CUDA 13 serves, from the
# one they are called now: with tensor cores llama.cpp takes its MMQ kernels by itself.
_NOW_CALLED = {
    "cpu_hybrid": "cpu",
    "cpu_cuda_hybrid": "cuda",
    "cuda_dense": "cuda",
    "cuda_hybrid": "cuda",
    "cuda_mmq_moe": "cuda",
}
_GONE = {
    "cuda_cublas_dense": "The profile cuda_cublas_dense is gone; cuda is the nearest, and a file "
    "in engine_ext/profiles with GGML_CUDA_FORCE_CUBLAS = true is what it was.",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """`description` (one sentence), `[cmake]` (define = true, false or text), `[runtime] notes`."""

    name: str
    description: str
    defines: dict[str, str]
    notes: list[str]

    @classmethod
    def load(cls, name: str) -> "Profile":
        """Raises BuildError for a name without a file, or a file with wrong contents."""
        if name in _GONE:
            raise BuildError(_GONE[name])
        name = _NOW_CALLED.get(name, name)
        path = PROFILES / f"{name}.toml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in PROFILES.glob("*.toml")))
            raise BuildError(
                f"There is no build profile {name!r}; the profiles are: auto, {known}."
            )
        try:
            table = tomllib.loads(path.read_text())
            defines = {key: _cmake_value(value) for key, value in table["cmake"].items()}
            return cls(name, table["description"], defines, list(table["runtime"]["notes"]))
        except (tomllib.TOMLDecodeError, KeyError, AttributeError, TypeError) as error:
            raise BuildError(f"{path.name} is not a build profile: {error}.") from error

    @property
    def is_cuda(self) -> bool:
        return self.defines.get("GGML_CUDA") == "ON"

    @property
    def is_portable(self) -> bool:
        """For other machines than the one that builds it."""
        return self.defines.get("GGML_NATIVE") == "OFF"

    @property
    def version(self) -> str:
        """Version of the wheel. pip never takes a cached wheel of another profile for it."""
        return f"{VERSION}+{self.name.replace('-', '.').replace('_', '.')}"


def _cmake_value(value: object) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)
