"""A stand-in for the NVIDIA driver's library, compiled: what the build asks of it, and no more."""

import os
import shlex
import subprocess
from pathlib import Path

_SOURCE = """
#include <string.h>
struct card { const char *name; int major, minor; };
static const struct card cards[] = { CARDS {0, 0, 0} };
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { return STATUS; }
int cuDeviceGetCount(int *count) { *count = sizeof cards / sizeof *cards - 1; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
  strncpy(name, cards[device].name, size);
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (attribute != 75 && attribute != 76) return 1;
  *value = attribute == 75 ? cards[device].major : cards[device].minor;
  return 0;
}
"""


def make_driver(
    folder: Path,
    *,
    cuda: int = 13000,
    cards: list[tuple[str, int, int]] | None = None,
    status: int = 0,
    release: str = "580.95.05",
) -> Path:
    """Compiles libcuda.so.1 into `folder`, with its name as a driver's package makes it.

    `cuda` is cuDriverGetVersion's number, `status` cuInit's; `cards` are name, major and minor.
    """
    listed = "".join(
        f'{{"{name}", {major}, {minor}}}, ' for name, major, minor in cards or [("GPU", 8, 6)]
    )
    if cards == []:
        listed = ""
    library = folder / f"libcuda.so.{release}"
    defines = {"VERSION": str(cuda), "STATUS": str(status), "CARDS": listed}
    subprocess.run(
        [
            *shlex.split(os.environ.get("CC", "cc")),
            *("-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"),
            *(f"-D{key}={value}" for key, value in defines.items()),
            *("-", "-o", str(library)),
        ],
        input=_SOURCE,
        text=True,
        check=True,
    )
    (folder / "libcuda.so.1").symlink_to(library.name)
    return folder
