"""New connections do not wait for one another, nor for those that are being served."""

import os
import select
import signal
import socket
import time
from contextlib import ExitStack

from tests.support.raw_http import connect
from tests.support.server import serving

N_CONNECTIONS = 600
KEPT = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
PROBE = KEPT[:-2] + b"Connection: close\r\n\r\n"


def n_answered(connections: list[socket.socket]) -> int:
    ready = select.poll()
    for connection in connections:
        ready.register(connection, select.POLLIN)
    return len(ready.poll(0))


def read_health(connection: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"}") and (piece := connection.recv(4096)):
        answer += piece
    return answer


def test_a_probe_is_answered_before_the_requests_in_front_of_it() -> None:
    with serving("-t", "1", "-np", "1", "--max-queue-requests", "1") as server, ExitStack() as held:
        with server.open_request("/completion", prompt="a", n_predict=-1, ignore_eos=True):
            server.until(lambda: server.metric("unpaced_requests_running") == 1)
            os.kill(server.process.pid, signal.SIGSTOP)
            flood = []
            for _ in range(N_CONNECTIONS):
                flood.append(held.enter_context(server.open_request("/completion", prompt="b")))
            probe = held.enter_context(connect(server.port))
            probe.sendall(PROBE)
            os.kill(server.process.pid, signal.SIGCONT)
            assert read_health(probe).startswith(b"HTTP/1.1 200 ")
            n_before = n_answered(flood)
            deadline = time.monotonic() + 60
            while n_answered(flood) < N_CONNECTIONS - 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            n_after = n_answered(flood)
    assert n_before < N_CONNECTIONS // 4
    assert n_after >= N_CONNECTIONS - 2  # one waits in the queue, one may have the slot by now


def test_clients_that_connect_at_once_are_all_begun_before_some_are_served_often() -> None:
    n_clients, n_answers = 48, [0] * 48
    with serving("-t", "1", "-np", "1") as server, ExitStack() as held:
        os.kill(server.process.pid, signal.SIGSTOP)
        ready = select.poll()
        clients = {}
        for i in range(n_clients):
            client = held.enter_context(connect(server.port))
            client.sendall(KEPT)
            ready.register(client, select.POLLIN)
            clients[client.fileno()] = (i, client)
        os.kill(server.process.pid, signal.SIGCONT)
        while min(n_answers) == 0:
            for descriptor, _ in ready.poll(10_000):
                i, client = clients[descriptor]
                assert read_health(client).startswith(b"HTTP/1.1 200 ")
                n_answers[i] += 1
                client.sendall(KEPT)
    assert max(n_answers) < 10, n_answers
