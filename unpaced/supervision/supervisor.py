"""`unpaced serve --supervise`: keeps the sockets, starts the server, and another after it."""

import asyncio
import gc
import os
import signal
import sys
import time
from functools import partial
from typing import Final

import structlog

from unpaced.http.wire.listener import Listeners
from unpaced.process.engine_watch import ENGINE_LOST
from unpaced.process.past_servers import PastServers
from unpaced.process.service_manager import ServiceManager
from unpaced.process.stack_dump import STACK_DUMP
from unpaced.settings import Settings
from unpaced.supervision.back_off import BackOff
from unpaced.supervision.child import Child
from unpaced.supervision.ending import Ending
from unpaced.supervision.hang import HangLimits
from unpaced.supervision.notify_socket import NotifySocket
from unpaced.supervision.stand_in import BACKLOG, StandIn

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_PASSED_ON: Final = (signal.SIGUSR1, signal.SIGUSR2)
_TICK_S: Final = 1.0
_STAND_IN_AFTER_S: Final = 2.0
_TOLD_TOO_S: Final = 0.1  # for a server to say that somebody has told it to stop, too
_STACKS_S: Final = 0.5  # for the stacks of a server that hangs, before it is killed


class Supervisor:
    """Runs once. Signals go to the server, with the meanings that they have for it; after one that
    ends it nothing is started any more."""

    def __init__(self, settings: Settings, listeners: Listeners) -> None:
        self._sockets = listeners.sockets
        self._log = structlog.stdlib.get_logger("unpaced")
        self._manager = ServiceManager.of_environment()
        self._notify = NotifySocket()
        self._limits = HangLimits(settings)
        self._back_off = BackOff()
        self._past = PastServers()
        has_tls = settings.ssl_cert_file is not None  # clients wait there: nobody speaks it
        live_path = f"{settings.api_prefix}/health/live"
        self._stand_in = None if has_tls else StandIn(self._sockets, live_path)
        self._standing_in: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._child_ended: asyncio.Future[int] | None = None
        self._stopped_by: int | None = None
        self._stop_told = asyncio.Event()
        self._ended_s: float | None = None
        self._ticked_s = time.monotonic()

    def run(self) -> int:
        """Until a signal, or until it gives up. Returns the exit status: the last server's."""
        for listener in self._sockets:
            listener.listen(BACKLOG)
        gc.freeze()
        gc.enable()  # a command line is over before it would pay
        try:
            with asyncio.Runner() as runner:
                return runner.run(self._run())
        finally:
            self._notify.close()

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        self._handle_signals(loop)
        loop.add_reader(self._notify.fileno(), self._on_messages)
        ticks = asyncio.create_task(self._tick())
        try:
            return await self._serve()
        finally:
            ticks.cancel()
            loop.remove_reader(self._notify.fileno())

    async def _serve(self) -> int:
        while True:
            ending = await self._serve_once()
            if self._stopped_by is not None:
                return self._status_of_stop(ending)
            wait_s = self._back_off.seconds(ending)
            self._past.restarts[ending.reason] += 1
            self._past.last_cause = ending.cause
            if wait_s is None:
                self._log.error("supervisor: gives up", cause=ending.cause)
                return ending.exit_status
            self._log.error("supervisor: the server is replaced", cause=ending.cause, in_s=wait_s)
            self._manager.tell(status=f"starts again: the last server {ending.cause}")
            self._begin_standing_in()
            try:
                await asyncio.wait_for(self._stop_told.wait(), wait_s)
            except TimeoutError:
                continue
            return 0

    async def _serve_once(self) -> Ending:
        loop = asyncio.get_running_loop()
        self._begin_standing_in()
        if self._stand_in is not None:
            self._past.n_refused = self._stand_in.n_refused
        environment = {"NOTIFY_SOCKET": self._notify.address, **self._past.to_environment()}
        watchdog_s = self._limits.beat_s or self._manager.watchdog_s
        if watchdog_s > 0:
            environment["WATCHDOG_USEC"] = str(int(1e6 * watchdog_s))
        self._child_ended = loop.create_future()
        child = self._child = Child([s.fileno() for s in self._sockets], environment)
        try:
            code = await self._child_ended
        finally:
            self._child = None
        now = self._ended_s = time.monotonic()
        return Ending(
            code,
            hang=f"hung: {child.hang}" if child.hang else "",
            was_ready=child.ready_s is not None,
            lived_s=0.0 if child.ready_s is None else now - child.ready_s,
            was_heard=child.heard_s is not None,
        )

    # -- while no server accepts -----------------------------------------------------------------

    def _begin_standing_in(self) -> None:
        """Answer clients if no server has begun to accept them in a while. Idempotent."""
        if self._stand_in is None:
            return
        cause = self._past.last_cause
        why = f": the last one {cause}" if cause else ""
        self._stand_in.message = f"the server is being started{why}"
        if self._standing_in is None:
            self._standing_in = asyncio.create_task(self._stand_in_soon(self._stand_in))

    async def _stand_in_soon(self, stand_in: StandIn) -> None:
        await asyncio.sleep(_STAND_IN_AFTER_S)
        stand_in.begin()

    def _end_standing_in(self) -> None:
        """A server accepts clients itself."""
        if self._stand_in is None or self._standing_in is None:
            return
        self._standing_in.cancel()
        self._standing_in = None
        self._stand_in.end()

    # -- the server's end ------------------------------------------------------------------------

    def _reap(self) -> None:
        """The server or, where this is process 1 of a container, orphans of a server."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._child is not None and pid == self._child.pid:
                self._child.mark_gone()
                if self._child_ended is not None and not self._child_ended.done():
                    self._child_ended.set_result(os.waitstatus_to_exitcode(status))

    def _status_of_stop(self, ending: Ending) -> int:
        if ending.hang:
            return ENGINE_LOST
        # It had nothing to bring to an end: its own handlers were not there yet.
        is_ours = ending.exit_status == 128 + (self._stopped_by or 0)
        return 0 if is_ours and not ending.was_heard else ending.exit_status

    # -- what the server says --------------------------------------------------------------------

    def _on_messages(self) -> None:
        now = time.monotonic()
        for pid, fields in self._notify.receive():
            child = self._child
            if child is None or pid != child.pid:
                continue
            is_first, was_ready = child.heard_s is None, child.ready_s is not None
            child.told(fields, now)
            if is_first:
                self._end_standing_in()
            if child.ready_s is not None and not was_ready:
                self._tell_ready(child, now)
            if "STATUS" in fields:
                self._manager.tell(status=fields["STATUS"])
            if "WATCHDOG" in fields:
                self._manager.beat()

    def _tell_ready(self, child: Child, now_s: float) -> None:
        self._manager.tell(ready=1, mainpid=os.getpid())
        if self._ended_s is not None:
            after_s, start_s = round(now_s - self._ended_s, 2), round(now_s - child.began_s, 2)
            self._log.warning("supervisor: ready again", after_s=after_s, start_s=start_s)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now, child = time.monotonic(), self._child
            was_away, self._ticked_s = now - self._ticked_s > 3 * _TICK_S, now
            if child is None or child.ready_s is None:
                self._manager.beat()  # the server's own words for it come later
            if child is None or child.hang:
                continue
            if was_away:
                child.excuse(now)
            child.hang = self._limits.why(child, now)
            if child.hang:
                self._end_hung(child)

    def _end_hung(self, child: Child) -> None:
        self._log.error("supervisor: the server hangs", reason=child.hang)
        child.signal(STACK_DUMP)
        asyncio.get_running_loop().call_later(_STACKS_S, child.signal, signal.SIGKILL)

    # -- signals ---------------------------------------------------------------------------------

    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in _ENDING:
            loop.add_signal_handler(number, partial(self._stop, number))
        for number in _PASSED_ON:
            loop.add_signal_handler(number, partial(self._pass_on, number))
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGTSTP, self._pause)

    def _on_hangup(self) -> None:
        # The server opens its log again; it drains where that is a terminal, which is gone then.
        if sys.stderr.isatty():
            self._stop(signal.SIGHUP)
        else:
            self._pass_on(signal.SIGHUP)

    def _stop(self, number: int) -> None:
        is_first = self._stopped_by is None
        self._stopped_by = number
        self._stop_told.set()
        if not is_first:
            self._pass_on(number)
            return
        self._manager.tell(stopping=1)
        if self._child is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(_TOLD_TOO_S, self._pass_on_stop, self._child, number)

    def _pass_on_stop(self, child: Child, number: int) -> None:
        # It has got the signal itself where somebody sent it to all processes of a service; the
        # second one would end it at once.
        if child.stopping_s is None:
            child.stopping_s = time.monotonic()  # it may hang, and not say so
            child.signal(number)

    def _pass_on(self, number: int) -> None:
        if self._child is not None:
            self._child.signal(number)

    def _pause(self) -> None:
        """A terminal's Ctrl-Z: both stand still until both go on."""
        self._pass_on(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._pass_on(signal.SIGCONT)
