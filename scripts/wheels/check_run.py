"""The check of a wheel in the environment it was built in, which has what reads libraries."""

from pathlib import Path

from pythons import BuildPython

from engine_ext.llama_build.step import run


def check(python: BuildPython, wheel: Path, root: Path) -> None:
    """`root`: the checkout, which no file of the wheel may name. Raises BuildError."""
    # A user without a home has "/", which every file names.
    folders = sorted({str(root), str(Path.home())} - {"/"})
    script = str(Path(__file__).with_name("wheel_check.py"))
    flags = [f"--not-in-it={folder}" for folder in folders]
    run(
        [python.executable, script, str(wheel), *flags],
        what=f"checking {wheel.name}",
        cwd=root,
        log=root / ".build" / "logs" / f"dist-check-{python.tag}.log",
        env={},
    )
