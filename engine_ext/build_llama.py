"""Builds the pinned llama-cpp-python for a profile; see `python engine_ext/build_llama.py --help`.

Needs Python's own library only; the interpreter it builds with also has requirements-build.lock.
"""

import os
import sys


def _run() -> int:
    folder = os.path.dirname(os.path.abspath(__file__))
    # As the script's folder it stands first on the path, where its types.py hides Python's own.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]

    from types import ModuleType

    # engine_ext itself cannot be imported before its native part exists: a bare stand-in holds the
    # place, so that engine_ext.llama_build is found.
    package = ModuleType("engine_ext")
    package.__path__ = [folder]
    sys.modules["engine_ext"] = package

    from engine_ext.llama_build.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(_run())
