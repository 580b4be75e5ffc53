"""What is made for other machines names no folder of this one in its assertions."""

import shlex


def prefix_map(folder: object, language: str) -> str:
    """The flag that cuts `folder` off the names of files, as CMAKE_<language>_FLAGS has it.

    CMake hands these flags to a shell, and nvcc hands what follows -Xcompiler to another one.
    """
    flag = f"-ffile-prefix-map={folder}/="
    if language != "CUDA":
        return shlex.quote(flag)
    return shlex.quote("-Xcompiler=" + (f'"{flag}"' if " " in flag else flag))
