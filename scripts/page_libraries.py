"""Fetches the libraries of the page at GET / from their npm packages into unpaced/page/vendor.

`python scripts/page_libraries.py` needs npm. A package whose SHA-512 is not the one below is
refused. What it writes is part of the checkout: a build fetches nothing.
"""

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "unpaced" / "page" / "vendor"


@dataclass(frozen=True, slots=True)
class Package:
    """A version of an npm package, and what of it the page has: path there -> path in FOLDER."""

    version: str
    sha512: str  # of the package, base64, as npm's lock files have it
    files: dict[str, str]
    exported: str = ""  # the name in its script that is to be exported: it is no module there


def _license_of(name: str, version: str, sha512: str) -> dict[str, Package]:
    """A package that another one's file contains."""
    return {name: Package(version, sha512, {"LICENSE": f"markdown-it/{name}-LICENSE"})}


PACKAGES: Final = {
    "markdown-it": Package(
        "15.0.3",
        "+Az7Ojz3iRGu8KYMvJ6xVhvrxP3eE+vEtJX75Ow88XBpcQNV/0lGX5ZynIIBftREo4DC2jsveAMDaeltmm8QvQ==",
        {
            "dist/browser/markdown-it.esm.min.mjs": "markdown-it/markdown-it.mjs",
            "LICENSE": "markdown-it/LICENSE",
        },
    ),
    **_license_of(
        "entities",
        "8.1.0",
        "kxL7msIffSuh9aaFAMD7rxAIuTRMAHMeBtgHW2yUdWw732ZNh4MehkF2gdjvtdmikkaIP9bFDDJOPlsvm7avrA==",
    ),
    **_license_of(
        "linkify-it",
        "6.1.0",
        "wJ/TwpSDTLepCrQoYWYIExIKg5Zchex2Nn5yk2mFnB+6PtdkHtyLx742md9csRjjOnGkKIS/RrbY7l8D6gT9Vw==",
    ),
    **_license_of(
        "mdurl",
        "2.1.0",
        "1+HBaOx0zi/dQWht8rNv9MYf9qqpqL/kxI0hXImU6Y547zM6Sni8BQibt7ifgMcYtQg41ao3Ivd6cnSM86inpg==",
    ),
    "@highlightjs/cdn-assets": Package(
        "11.12.0",
        "KvOKXODaiFmId9xaq3xc5xCL66wVLUuOngDbO9B/kewbFTqdGbn2nJxNhN3H5R1cgDTVj6R8vH0zgiNDEGjpDw==",
        {"es/highlight.min.js": "highlight/highlight.mjs", "LICENSE": "highlight/LICENSE"},
    ),
    "temml": Package(
        "0.13.5",
        "aPkDDgunanpLNL0ql32HbolqLep+w8DRcVXRql7rWrMt/PhczdLgL4UBYYVU3BYjCNjkGq4EqwIicu/zWr1iOg==",
        {"dist/temml.min.js": "temml/temml.mjs", "LICENSE": "temml/LICENSE"},
        exported="temml",
    ),
}


def main() -> int:
    """0; 1 if a package is not the pinned one, and then the folder is as it was."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "vendor"
        for name, package in PACKAGES.items():
            archive = _fetch(name, package.version, Path(scratch))
            digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            if digest != package.sha512:
                print(f"{name} {package.version} is not the pinned package: SHA-512 {digest}")
                return 1
            _extract(archive, package, made)
        sums = sorted((path.relative_to(made), path) for path in made.rglob("*") if path.is_file())
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {n}\n" for n, path in sums]
        (made / "SHA256SUMS").write_text("".join(lines))
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(made, FOLDER)
    return 0


def _fetch(name: str, version: str, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
    told = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return folder / told.stdout.split()[-1]


def _extract(archive: Path, package: Package, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        for inside, path in package.files.items():
            content = opened.extractfile(f"package/{inside}")
            assert content is not None
            end = f"\nexport default {package.exported};\n" if package.exported else ""
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            is_script = path.endswith(".mjs")
            (folder / path).write_bytes(content.read() + (end.encode() if is_script else b""))


if __name__ == "__main__":
    sys.exit(main())
