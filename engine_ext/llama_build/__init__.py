"""The custom llama-cpp-python build: pinned source, named profile, a checked wheel in `.build/`.

pins -> source (fetch, unpack, patch) -> wheel (compile, check, install); cli puts them together.
Used at build time; the pins also at load time, to check what was installed.
"""
