"""Docker Compose itself, of the package that `make test-deploy` installs."""

from importlib.util import find_spec
from pathlib import Path

import pytest


def docker_compose() -> str:
    """The program's path; skips where it is missing.

    Not the package's own script for it, which swallows the exit status.
    """
    package = find_spec("compose")
    if package is None or package.origin is None:
        pytest.skip("no docker-compose (make test-deploy installs it)")
    return str(Path(package.origin).with_name("docker-compose"))
