"""Build profiles: one TOML file each in `engine_ext/profiles`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from .errors import BuildError
from .pins import VERSION

PROFILES = Path(__file__).resolve().parents[1] / "profiles"


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
        path = PROFILES / f"{name}.toml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in PROFILES.glob("*.toml")))
            raise BuildError(f"There is no build profile {name!r}; the profiles are: {known}.")
        try:
            table = tomllib.loads(path.read_text())
            defines = {key: _cmake_value(value) for key, value in table["cmake"].items()}
            return cls(name, table["description"], defines, list(table["runtime"]["notes"]))
        except (tomllib.TOMLDecodeError, KeyError, AttributeError, TypeError) as error:
            raise BuildError(f"{path.name} is not a build profile: {error}.") from error

    @property
    def version(self) -> str:
        """Version of the wheel. pip never takes a cached wheel of another profile for it."""
        return f"{VERSION}+{self.name.replace('-', '.').replace('_', '.')}"


def _cmake_value(value: object) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)
