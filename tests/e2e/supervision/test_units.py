"""systemd's own word for the units of deploy/."""

import configparser
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.server import UNPACED
from unpaced.process.stack_dump import STACK_DUMP
from unpaced.settings import Settings

DEPLOYED = Path(__file__).resolve().parents[3] / "deploy"
EXPOSURE_MAX = 1.5
"""Of 10, as systemd-analyze counts it."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd-analyze on the PATH (Debian: apt-get install systemd); .ci/run installs it",
)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units as somebody installs them, but for where the server is."""
    text = (DEPLOYED / "unpaced.service").read_text()
    installed = "/opt/unpaced/bin/unpaced"
    assert installed in text
    (tmp_path / "unpaced.service").write_text(text.replace(installed, str(UNPACED)))
    shutil.copy(DEPLOYED / "unpaced.socket", tmp_path)
    return tmp_path


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@needs_systemd
@pytest.mark.parametrize("has_gpu", [False, True])
def test_systemd_understands_all_of_it(units: Path, has_gpu: bool) -> None:
    if has_gpu:
        folder = units / "unpaced.service.d"
        folder.mkdir()
        shutil.copy(DEPLOYED / "unpaced-gpu.conf", folder)
    done = analyze("verify", "--man=no", units / "unpaced.service", units / "unpaced.socket")
    ours = [line for line in done.stderr.splitlines() if "unpaced" in line]
    assert ours == []
    assert done.returncode == 0, done.stderr


@needs_systemd
def test_it_exposes_little(units: Path) -> None:
    threshold = f"--threshold={EXPOSURE_MAX * 10:.0f}"
    done = analyze("security", "--offline=true", threshold, units / "unpaced.service")
    assert done.returncode == 0, done.stdout


@needs_systemd
def test_a_mistake_would_be_seen(units: Path) -> None:
    unit = units / "unpaced.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "WatchdogSecs" in analyze("verify", "--man=no", unit).stderr


def service_section(text: str) -> configparser.SectionProxy:
    """A unit's [Service]; of a setting that stands there twice the last."""
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    return unit["Service"]


def test_the_drop_in_opens_what_the_cards_need_and_the_unit_closes() -> None:
    text = (DEPLOYED / "unpaced-gpu.conf").read_text()
    unit, cards = service_section((DEPLOYED / "unpaced.service").read_text()), service_section(text)
    for name in ("PrivateDevices", "MemoryDenyWriteExecute"):
        assert (unit[name], cards[name]) == ("yes", "no")
    allowed = set(re.findall(r"^DeviceAllow=char-(\S+) rw?$", text, re.MULTILINE))
    assert allowed == {"nvidia*", "nvidia-uvm", "nvidia-caps"}
    # Where the unit lets it write, and nowhere else.
    cache = cards["Environment"].removeprefix("CUDA_CACHE_PATH=")
    assert cache.startswith(f"/var/cache/{unit['CacheDirectory']}/")


def test_its_times_and_statuses_fit_the_servers() -> None:
    service = service_section((DEPLOYED / "unpaced.service").read_text())
    settings = Settings()
    assert service["Type"] == "notify"
    # The server itself tells its clients first.
    assert float(service["WatchdogSec"]) > settings.stall_timeout + 2 * settings.stop_timeout
    assert float(service["TimeoutStopSec"]) > settings.drain_timeout + 2 * settings.stop_timeout
    assert service["RestartPreventExitStatus"] == "1"
    number = re.fullmatch(r"SIGRTMIN\+(\d+)", service["WatchdogSignal"])
    assert number is not None
    assert int(number[1]) == STACK_DUMP - signal.SIGRTMIN
