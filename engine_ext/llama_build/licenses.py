"""The licenses of what llama.cpp is compiled from: they go wherever its libraries go."""

import re
from pathlib import Path

from . import pins


def license_text(llama: Path) -> str:
    """llama.cpp's license, then the notices of others in the files that pins.py names.

    `llama` is llama.cpp's folder.
    """
    parts = [(llama / "LICENSE").read_text()]
    for name in pins.FILES_OF_OTHERS:
        blocks = re.findall(r"(?:^//.*\n)+", (llama / name).read_text(), re.MULTILINE)
        parts += [
            f"{name}:\n\n{re.sub('^// ?', '', block, flags=re.MULTILINE)}"
            for block in blocks
            if "Copyright" in block
        ]
    return "\n".join(parts)
