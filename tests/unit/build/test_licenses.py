"""What is given away compiled goes with its license, in checkouts, images and wheels alike."""

import re
from pathlib import Path

import engine_ext._native
from engine_ext.base.build_info import find_llama
from engine_ext.llama_build import pins
from engine_ext.llama_build.licenses import license_text
from engine_ext.llama_build.source import Source

LLAMA = Source(Path(__file__).resolve().parents[3] / ".build").tree / "vendor" / "llama.cpp"
OF_ARM = "ggml/src/ggml-cpu/kleidiai/"  # not compiled (GGML_CPU_KLEIDIAI)


def test_the_installed_libraries_have_their_license() -> None:
    place = find_llama()
    assert place is not None
    folder = place.libraries if place.is_bundled else place.libraries.parent
    text = (folder / Path(pins.LICENSE_FILE).name).read_text()
    assert text == license_text(LLAMA)
    for holder in ("The ggml authors", "Mozilla Foundation", "Jeffrey Quesnelle and Bowen Peng"):
        assert re.search(rf"Copyright .*{holder}", text)
    assert text.count("Permission is hereby granted, free of charge") == 2


def test_the_native_module_has_the_licenses_of_what_is_compiled_into_it() -> None:
    native = Path(engine_ext._native.__file__).parent
    text = (native / "lib" / "nanobind-LICENSE").read_text()
    assert re.search(r"Copyright .*Wenzel Jakob", text)
    assert re.search(r"Copyright .*Thibaut Goetghebuer-Planchon", text)
    assert text.endswith("SOFTWARE.\n */\n")


def test_nobodys_notice_is_forgotten() -> None:
    folders = [LLAMA / "src", LLAMA / "ggml" / "src"]
    files = [file for folder in folders for file in folder.glob("*.c*")]
    for name in ("src/models", "ggml/src/ggml-cpu", "ggml/src/ggml-cuda", "ggml/src/ggml-vulkan"):
        files += [file for file in (LLAMA / name).rglob("*.c*") if OF_ARM not in str(file)]
    lines = [
        line.strip("/* ").strip()
        for file in files
        for line in file.read_text().splitlines()
        if "Copyright" in line
    ]
    assert len(lines) >= 3
    text = license_text(LLAMA)
    assert [line for line in lines if line not in text] == []
