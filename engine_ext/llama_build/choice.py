"""Which profile is built, and for which cards: what the user named, or what this machine has."""

import re
from dataclasses import dataclass

from .architectures import OLDEST, architectures, supported
from .driver import Driver, Version, dotted, find_driver, why_no_card
from .errors import BuildError
from .profile import Profile

CUDA: Version = (13, 0)
"""What CUDA builds are compiled with, and what a driver has to run at least."""
OLDEST_DRIVER = "580"
"""The first release of the driver that runs it."""

AUTO = "auto"
_NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Choice:
    """`architectures` as CMake takes them, "" without CUDA; `line` tells the user why.

    `driver` is the CUDA version that this machine's runs, if the build is for its cards.
    """

    profile: Profile
    architectures: str
    line: str = ""
    driver: Version | None = None


def choose(name: str, wanted_architectures: str = "") -> Choice:
    """For a profile's name or "auto". Raises BuildError, one sentence, for what cannot be built."""
    wanted_architectures = _checked(wanted_architectures)
    if name == AUTO:
        return _automatic(find_driver(), wanted_architectures)
    profile = Profile.load(name)
    line = f"The profile {name} is called {profile.name} now." if profile.name != name else ""
    if not profile.is_cuda:
        if wanted_architectures:
            raise BuildError(f"The profile {profile.name} compiles for no NVIDIA card.")
        return Choice(profile, "", line)
    if wanted_architectures or profile.defines[_KEY] != _NATIVE:
        return Choice(profile, wanted_architectures or profile.defines[_KEY], line)
    driver = find_driver()
    found, about = _for_cards_here(driver)
    lines = " ".join(filter(None, (line, about)))
    return Choice(profile, found, lines, driver.cuda if driver else None)


def driver_too_old(driver: Driver) -> str:
    """One sentence with both versions, "" if the driver is new enough."""
    if driver.cuda >= CUDA:
        return ""
    return (
        f"the {driver} runs CUDA {dotted(driver.cuda)}, and CUDA {dotted(CUDA)} needs "
        f"driver {OLDEST_DRIVER} or newer"
    )


_KEY = "CMAKE_CUDA_ARCHITECTURES"


def _checked(wanted: str) -> str:
    """As CMake takes it; commas and blanks separate, too. Raises BuildError for what it is not."""
    parts = [part for part in re.split(r"[;,\s]+", wanted) if part]
    for part in parts:
        found = re.fullmatch(r"(\d+)(\d)[af]?(-real|-virtual)?|native|all|all-major", part)
        if not found:
            raise BuildError(
                f"CUDA_ARCHS has {part!r}: it lists CMake's CUDA architectures, such as "
                "86-real;89-real for RTX 30 and RTX 40."
            )
        if found[1] and (capability := (int(found[1]), int(found[2]))) < OLDEST:
            raise BuildError(
                f"CUDA_ARCHS has {part!r}: CUDA {dotted(CUDA)} serves compute capability "
                f"{dotted(OLDEST)} and later, not {dotted(capability)}."
            )
    return ";".join(parts)


def _automatic(driver: Driver | None, wanted: str) -> Choice:
    reason = _why_no_cuda(driver)
    if wanted and (driver is None or reason):
        # Who names cards wants CUDA, if not for this machine.
        line = f"Profile cuda: CUDA_ARCHS names cards; here {reason}."
        return Choice(Profile.load("cuda"), wanted, line)
    if driver is None or reason:
        line = f"Profile cpu: {reason} (make PROFILE=... chooses otherwise)."
        return Choice(Profile.load("cpu"), "", line)
    names = ", ".join(dict.fromkeys(str(card) for card in supported(driver.cards)))
    line = f"Profile cuda: {names}, {driver} (make PROFILE=cpu chooses otherwise)."
    found = wanted or architectures(driver.cards)
    return Choice(Profile.load("cuda"), found, line, driver.cuda)


def _why_no_cuda(driver: Driver | None) -> str:
    if driver is None:
        return "there is no NVIDIA driver here"
    if old := driver_too_old(driver):
        return old
    if not driver.cards:
        return f"the {driver} shows no card ({why_no_card(driver)})"
    if not supported(driver.cards):
        names = ", ".join(str(card) for card in driver.cards)
        return (
            f"CUDA {dotted(CUDA)} serves compute capability {dotted(OLDEST)} and later, not {names}"
        )
    return ""


def _for_cards_here(driver: Driver | None) -> tuple[str, str]:
    if driver is not None and (old := driver_too_old(driver)):
        raise BuildError(
            f"The profile cuda is for the cards of this machine, but {old}. PROFILE=cuda-portable "
            "builds for other machines, PROFILE=cpu without CUDA."
        )
    if driver is not None and (found := architectures(driver.cards)):
        return found, ""
    everywhere = Profile.load("cuda-portable").defines[_KEY]
    return everywhere, (
        f"No card for it is here ({_why_no_cuda(driver)}): compiling for all of {everywhere}; "
        "CUDA_ARCHS=86-real takes one."
    )
