"""A model that cannot be one is named, with the reason, before anything is loaded."""

from pathlib import Path

import pytest

from engine_ext.base.errors import ModelLoadError
from engine_ext.loading.model_file import check_model_file
from engine_ext.loading.model_info import describe


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"GG", "is not a GGUF file"),
        (b"PK\x03\x04 and so on", "is not a GGUF file"),
    ],
)
def test_a_file_that_is_no_model(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelLoadError) as caught:
        check_model_file(file)
    assert str(caught.value).startswith(f"cannot load model {file}: {reason}")


def test_a_folder_names_what_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="is a folder, and no GGUF file is in it"):
        check_model_file(tmp_path)
    for i in range(5):
        (tmp_path / f"{i}.gguf").touch()
    with pytest.raises(ModelLoadError, match=r"such as 0.gguf, 1.gguf, 2.gguf and 2 more in it"):
        check_model_file(tmp_path)


def test_what_is_no_file() -> None:
    with pytest.raises(ModelLoadError, match="/dev/null: is not a regular file"):
        check_model_file(Path("/dev/null"))
    with pytest.raises(ModelLoadError, match="no such file"):
        check_model_file(Path("/no/such"))


def test_a_model_that_llama_cpp_has_no_size_for_shows_its_parameters() -> None:
    assert describe("llama ?B Q8_0", 3_344_640) == "llama 3.3M Q8_0"
    assert describe("llama 7B Q8_0", 6_738_415_616) == "llama 7B Q8_0"
    assert describe("x ?B F16", 1_200_000_000) == "x 1.2B F16"
