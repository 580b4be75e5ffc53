"""The name of the oldest Linux that a wheel runs on, which auditwheel finds out."""

from pathlib import Path

from pythons import BuildPython

from engine_ext.llama_build.step import run

ROOT = Path(__file__).resolve().parents[2]
# The driver's library is the machine's, CUDA's are packages that the wheel depends on.
NOT_BROUGHT = ("libcuda.so.*", "libcudart.so.*", "libcublas*.so.*")


def tagged(python: BuildPython, wheel: Path, out: Path) -> Path:
    """The wheel with the tag of the oldest Linux that has what its libraries ask for.

    Raises BuildError.
    """
    options = [f"--exclude={name}" for name in NOT_BROUGHT]
    # Libraries for wide vectors are loaded only where the processor has them; nothing is grafted.
    options += ["--disable-isa-ext-check", "--patcher=none", "--wheel-dir", str(out)]
    run(
        [python.executable, "-P", "-m", "auditwheel", "repair", *options, str(wheel)],
        what="checking the wheel with auditwheel",
        cwd=wheel.parent,
        log=ROOT / ".build" / "logs" / f"dist-auditwheel-{python.tag}.log",
        env={},
    )
    return next(out.glob("*.whl"))
