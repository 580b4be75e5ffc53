"""The two ends of sd_notify's protocol."""

import os
import socket
import time
from pathlib import Path

from tests.support.supervision.notify_listener import NotifyListener
from unpaced.process.service_manager import ServiceManager
from unpaced.supervision.notify_socket import NotifySocket


def test_a_message_comes_with_its_sender() -> None:
    notify = NotifySocket()
    manager = ServiceManager.of_environment({"NOTIFY_SOCKET": notify.address})
    manager.tell(ready=1, status="two\nlines")
    manager.tell(status="two\nlines")  # the same again
    assert notify.receive() == [(os.getpid(), {"READY": "1", "STATUS": "two lines"})]
    assert notify.receive() == []
    notify.close()


def test_what_is_no_message_disturbs_nobody() -> None:
    notify = NotifySocket()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        for data in (b"", b"\xff\xfe\n=", b"A=1\nB", b"x" * 60_000):
            other.sendto(data, "\0" + notify.address[1:])
    assert [fields for _, fields in notify.receive()] == [{}, {"": ""}, {"A": "1"}, {}]
    notify.close()


def test_only_who_is_watched_beats(socket_folder: Path) -> None:
    listener = NotifyListener(socket_folder / "notify")
    watched = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "3000000"}
    for more in ({}, {"WATCHDOG_PID": str(os.getpid())}, {"WATCHDOG_PID": "1"}):
        ServiceManager.of_environment(watched | more).beat()
    ServiceManager.of_environment({"NOTIFY_SOCKET": listener.address}).beat()
    assert listener.values("WATCHDOG") == ["1", "1"]
    listener.close()


def test_nobody_to_tell_is_no_error(tmp_path: Path) -> None:
    ServiceManager(None).tell(ready=1)
    ServiceManager(str(tmp_path / "none"), 1.0).beat()
    ServiceManager("@unpaced-test/none", 1.0).beat()


def test_a_manager_that_does_not_read_holds_up_nobody() -> None:
    notify = NotifySocket()
    manager = ServiceManager(notify.address, 1.0)
    started = time.monotonic()
    for number in range(30):  # more than the queue of a socket holds
        manager.tell(status=number)
    assert time.monotonic() - started < 10
    notify.close()
