"""The socket of a chat's own server."""

import socket
import tempfile
from pathlib import Path

import pytest

from unpaced.cli.chat.own_server import short_folder


@pytest.mark.parametrize("n_letters", [1, 200])
def test_its_path_has_room_wherever_temporary_files_go(
    n_letters: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / ("x" * n_letters)
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    with (
        tempfile.TemporaryDirectory(prefix="unpaced-chat-", dir=short_folder()) as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        listener.bind(f"{folder}/chat.sock")
