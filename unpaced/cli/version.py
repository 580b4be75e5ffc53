"""`unpaced --version`."""

from engine_ext import read_build_info


def show_version() -> int:
    """Version, llama.cpp commit and build profile, on one line."""
    build = read_build_info()
    print(
        f"unpaced {build.version} (llama.cpp {build.llama_commit}, build profile {build.profile})"
    )
    return 0
