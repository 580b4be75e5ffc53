"""Builds Unpaced's wheels: `make dist` runs it, and docs/releasing.md says what for.

A wheel brings the llama.cpp that its engine was compiled for, in a folder of its own
(engine_ext/lib), and everything else that serving the demo model takes. It has no path of this
machine in it, and auditwheel finds out how old a Linux it runs on.

    python scripts/wheels/make_dist.py --profile cpu-portable --out dist --python python3.11
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from built_llama import BuiltLlama  # noqa: E402
from check_run import check  # noqa: E402
from platform_tag import tagged  # noqa: E402
from pythons import BuildPython, found_pythons  # noqa: E402
from stage import Stage  # noqa: E402

from engine_ext.llama_build.errors import BuildError  # noqa: E402
from engine_ext.llama_build.prefix_map import prefix_map  # noqa: E402
from engine_ext.llama_build.profile import Profile  # noqa: E402
from engine_ext.llama_build.step import relative, run, say  # noqa: E402

WORK = ROOT / ".build" / "dist"


def main() -> int:
    """Exit status; a failure is one sentence on stderr, after the end of the log it came from."""
    options = _parse()
    try:
        profile = Profile.load(options.profile)
        if not profile.is_portable:
            raise BuildError(
                f"The profile {profile.name} compiles for this machine's processor alone; a wheel "
                "is for others too: PROFILE=cpu-portable."
            )
        pythons = found_pythons(options.python, WORK)
        llama = BuiltLlama.build(profile, options.cuda_archs, options.jobs, WORK)
        wheels = [_make(python, profile, llama, options) for python in pythons]
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(*(f"{relative(it)}  {it.stat().st_size / 1e6:.1f} MB" for it in wheels), sep="\n")
    return 0


def _make(
    python: BuildPython, profile: Profile, llama: BuiltLlama, options: argparse.Namespace
) -> Path:
    python.prepare(ROOT)
    stage = Stage.make(ROOT, WORK / "source", has_cuda=profile.is_cuda)
    raw, checked = WORK / "raw" / python.tag, WORK / "checked" / python.tag
    for folder in (raw, checked):
        shutil.rmtree(folder, ignore_errors=True)
    say("engine", f"for {python.title}")
    run(
        _pip_wheel(python, stage, profile, llama, raw),
        what=f"building the wheel for {python.title}",
        cwd=stage.folder,
        log=ROOT / ".build" / "logs" / f"dist-{python.tag}.log",
        env=_environment(python, stage, llama, options.jobs),
        build_file=_build_folder(python, profile) / "build.ninja",
        n_jobs=options.jobs,
    )
    wheel = tagged(python, next(raw.glob("*.whl")), checked)
    check(python, wheel, ROOT)
    options.out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(wheel, options.out))


def _build_folder(python: BuildPython, profile: Profile) -> Path:
    return WORK / "extension" / f"{profile.name}-{python.tag}"


def _pip_wheel(
    python: BuildPython, stage: Stage, profile: Profile, llama: BuiltLlama, out: Path
) -> list[str]:
    settings = {
        "build-dir": str(_build_folder(python, profile)),
        "cmake.define.UNPACED_BUNDLE": "ON",
        # What llama.cpp's build has of CUDA.
        "cmake.args": f"-C{ROOT / '.build' / 'extension.cmake'}",
        "cmake.define.UNPACED_LLAMA_LIB": str(llama.package / "lib"),
        "cmake.define.UNPACED_LLAMA_SRC": str(llama.source),
    }
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--verbose"]
    options += [f"--config-settings={key}={value}" for key, value in settings.items()]
    return [python.executable, "-P", "-m", "pip", "wheel", *options, "-w", str(out), "."]


def _environment(
    python: BuildPython, stage: Stage, llama: BuiltLlama, n_jobs: int
) -> dict[str, str]:
    roots = (stage.folder, llama.source.parent, python.folder)
    return {
        "CXXFLAGS": " ".join(prefix_map(root, "CXX") for root in roots),
        "CUDAFLAGS": " ".join(prefix_map(root, "CUDA") for root in roots),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(n_jobs),
        "CMAKE_GENERATOR": "Ninja",
        "PATH": os.pathsep.join([str(python.folder / "bin"), os.environ.get("PATH", os.defpath)]),
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make_dist.py", description="Builds Unpaced's wheels.")
    parser.add_argument("--profile", default="cpu-portable", help="(cpu-portable)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="(dist)")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        help="an interpreter to build for, any number of times; default: python3.11 and one of "
        "3.12 or later, whose wheel serves all of these",
    )
    parser.add_argument("--cuda-archs", default="", help="other cards than the profile's")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
