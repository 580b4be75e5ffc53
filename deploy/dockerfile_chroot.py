"""Follows the Dockerfile without Docker: every step in a chroot on a clean Debian.

    sudo python3 deploy/dockerfile_chroot.py /var/tmp/unpaced-image

Makes `base` (Debian with the packages that the Python base image has) and one root per stage, and
does RUN, COPY, ENV, WORKDIR, USER and ARG as Docker does; other instructions only describe the
image and are printed. The last stage is `DIR/final`: `DIR/run [ARGUMENTS]` starts it as
`docker run --read-only --tmpfs /tmp` would, and `DIR/health` is its HEALTHCHECK.
Needs root and debootstrap.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASE_PACKAGES = "ca-certificates,python3,python3-dev,python3-venv"
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(slots=True)
class Stage:
    """One FROM: its root folder and what its instructions have set so far."""

    root: Path
    args: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def path(self, target: str) -> Path:
        """Where `target`, relative to WORKDIR, lies outside the chroot."""
        return self.root / os.path.join(self.workdir, target).lstrip("/")

    def argv(self, command: list[str], *, read_only: bool = False) -> list[str]:
        """The command line that runs `command` in this root: a RUN, or read-only the container."""
        env = self.env if read_only else self.args | self.env
        mounts = 'mount -t proc proc "$0/proc" && mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"'
        if read_only:
            mounts = f'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && {mounts}'
        private = ["unshare", "--mount", "/bin/sh", "-c", f'{mounts} && exec "$@"', str(self.root)]
        chroot = ["chroot", f"--userspec={self.user}", "--groups=", str(self.root)]
        variables = [f"{key}={value}" for key, value in env.items()]
        inner = f"cd {shlex.quote(self.workdir)} && exec {shlex.join(command)}"
        return [
            *private,
            *chroot,
            "/usr/bin/env",
            "-i",
            "HOME=/",
            *variables,
            "/bin/sh",
            "-c",
            inner,
        ]


class Builder:
    """Executes the instructions one after the other."""

    def __init__(self, folder: Path, build_args: dict[str, str], ca_bundle: Path | None) -> None:
        self._folder, self._build_args, self._ca_bundle = folder, build_args, ca_bundle
        self._ignored = _read_ignore(ROOT / ".dockerignore")
        self._stages: dict[str, Stage] = {}

    def build(self) -> Stage:
        """Returns the last stage."""
        for keyword, text in _instructions(ROOT / "Dockerfile"):
            print(f"{keyword} {text}", flush=True)
            handler = getattr(self, f"_{keyword.lower()}", None)
            if handler is not None:
                handler(text)
        return self._last

    @property
    def _last(self) -> Stage:
        return list(self._stages.values())[-1]

    def _from(self, text: str) -> None:
        name = text.split(" AS ")[1] if " AS " in text else "final"
        base = self._folder / "base"
        if not base.is_dir():
            self._make_base(base)
        root = self._folder / name
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
        self._stages[name] = Stage(root)
        if self._ca_bundle is not None:
            shutil.copy(self._ca_bundle, root / "etc/ssl/certs/ca-certificates.crt")
            self._last.args["PIP_CERT"] = "/etc/ssl/certs/ca-certificates.crt"

    def _make_base(self, base: Path) -> None:
        partial = base.with_name("base.partial")
        shutil.rmtree(partial, ignore_errors=True)
        include = f"--include={BASE_PACKAGES}"
        debootstrap = ["debootstrap", "--variant=minbase", include, "bookworm", str(partial)]
        subprocess.run(debootstrap, check=True, stdout=subprocess.DEVNULL)
        (partial / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for name in ("resolv.conf", "hosts"):
            shutil.copy(Path("/etc") / name, partial / "etc" / name)
        partial.rename(base)

    def _arg(self, text: str) -> None:
        name, _, default = text.partition("=")
        if self._stages:  # one before the first FROM only names the base image
            self._last.args[name] = self._build_args.get(name, default)

    def _env(self, text: str) -> None:
        for word in shlex.split(text):
            key, _, value = word.partition("=")
            self._last.env[key] = re.sub(
                r"\$\{?(\w+)\}?", lambda found: self._last.env.get(found[1], ""), value
            )

    def _workdir(self, text: str) -> None:
        self._last.workdir = os.path.join(self._last.workdir, text)
        self._last.path(".").mkdir(parents=True, exist_ok=True)

    def _user(self, text: str) -> None:
        self._last.user = text

    def _run(self, text: str) -> None:
        subprocess.run(self._last.argv(["/bin/sh", "-c", text]), check=True)

    def _copy(self, text: str) -> None:
        *sources, target = text.split()
        stage = ROOT
        if sources[0].startswith("--from="):
            stage = self._stages[sources.pop(0).removeprefix("--from=")].root
        destination = self._last.path(target)
        for source in sources:
            origin = stage / source.lstrip("/")
            if origin.is_file():
                file = destination / origin.name if target.endswith("/") else destination
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin, file)
            else:
                ignore = self._ignore_in_context if stage == ROOT else None
                shutil.copytree(
                    origin, destination, symlinks=True, ignore=ignore, dirs_exist_ok=True
                )

    def _ignore_in_context(self, folder: str, names: list[str]) -> list[str]:
        inside = Path(folder).relative_to(ROOT)
        return [name for name in names if _is_ignored(inside / name, self._ignored)]

    def _entrypoint(self, text: str) -> None:
        self._last.entrypoint = json.loads(text)

    def _cmd(self, text: str) -> None:
        self._last.command = json.loads(text)

    def _healthcheck(self, text: str) -> None:
        self._last.health = json.loads(text.partition(" CMD ")[2])


def _instructions(dockerfile: Path) -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    return [
        (keyword, rest.strip())
        for keyword, _, rest in (line.partition(" ") for line in lines if line.strip())
    ]


def _read_ignore(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


def _is_ignored(path: Path, patterns: list[str]) -> bool:
    """The last pattern that matches the path or a folder above it decides, as in Docker."""
    above = [str(path), *(str(parent) for parent in path.parents)]
    ignored = False
    for line in patterns:
        pattern = line.removeprefix("!")
        if pattern.startswith("**/"):
            hit = any(fnmatchcase(part, pattern[3:]) for part in path.parts)
        else:
            hit = any(fnmatchcase(name, pattern) for name in above)
        if hit:
            ignored = not line.startswith("!")
    return ignored


def _write_script(file: Path, stage: Stage, command: list[str], default: list[str]) -> None:
    """Arguments of the script are the container's; without any it gets the `default` ones."""
    *outer, inner = stage.argv(command, read_only=True)
    with_arguments = inner + ' "$@"'
    file.write_text(
        "#!/bin/sh\n"
        f"[ $# -gt 0 ] || set -- {shlex.join(default)}\n"
        f'exec {shlex.join(outer)} {shlex.quote(with_arguments)} sh "$@"\n'
    )
    file.chmod(0o755)


def main() -> int:
    """Exit status of the first step that fails, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the roots are made; 2 GB")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--ca-bundle", type=Path, help="for a network that has its own CA")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("Needs root and debootstrap (apt-get install debootstrap).", file=sys.stderr)
        return 1
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    build_args = dict(item.partition("=")[::2] for item in options.build_arg)
    try:
        final = Builder(folder, build_args, options.ca_bundle).build()
    except subprocess.CalledProcessError as error:
        print(f"That step failed (exit {error.returncode}).", file=sys.stderr)
        return error.returncode
    _write_script(folder / "run", final, final.entrypoint, final.command)
    _write_script(folder / "health", final, final.health, [])
    print(f"Done. Start it with {folder / 'run'}, ask it with {folder / 'health'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
