"""The server as a process: signals, progress, orderly end."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, NoReturn

import structlog
import uvloop
from starlette.applications import Starlette

from engine_ext import Engine, LogTarget, give_back_heap, read_build_info
from unpaced.completion.admission import Admission
from unpaced.http.errors import unavailable
from unpaced.http.gate import Gate, Phase
from unpaced.http.wire.listener import Listeners
from unpaced.process.app import create_app
from unpaced.process.early_load import EarlyLoad
from unpaced.process.engine_watch import ENGINE_LOST, EngineWatch
from unpaced.process.heap_watch import HeapWatch
from unpaced.process.logs import LogFileError, open_log_file
from unpaced.process.service_manager import ServiceManager
from unpaced.process.stack_dump import write_stacks_on_signal
from unpaced.process.start_report import (
    LoadProgress,
    curl_line,
    tell_kernels,
    tell_loop,
    tell_memory,
    tell_threads,
)
from unpaced.process.uvicorn_server import GRACEFUL_S, TICK_S, UvicornServer
from unpaced.request.model_host import ModelHost
from unpaced.settings import Settings

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_IGNORED: Final = (signal.SIGUSR1, signal.SIGUSR2)
_LAST_LINES_S: Final = 1.0  # for a log that nobody reads


class ServerProcess:
    """Runs once. SIGTERM, SIGINT or SIGQUIT drains; the second one ends the process at once.

    SIGHUP opens the log file again, for who moves it away; on a terminal, which is gone then, it
    drains. SIGUSR1 and SIGUSR2 do nothing.
    """

    def __init__(self, settings: Settings, listeners: Listeners, load: EarlyLoad) -> None:
        self._native_log = load.native_log
        self._load_began_s = load.began_s
        self._settings = settings
        self._listeners = listeners
        self._log = structlog.stdlib.get_logger("unpaced")
        self._engine = load.engine
        self._app: Starlette = create_app(self._engine, settings, self._new_engine)
        self._host: ModelHost = self._app.state.host
        self._gate: Gate = self._app.state.gate
        self._admission: Admission = self._app.state.completions.admission
        self._app.state.metrics.count_dropped_log = lambda: self._native_log.n_dropped
        self._server = UvicornServer(self._app, settings)
        self._server.on_second = self._look_each_second
        self._server.on_refused = partial(self._app.state.metrics.rejected, "connections")
        self._watch = EngineWatch(settings.stall_timeout, TICK_S)
        self._heap = HeapWatch(give_back_heap)
        self._manager = ServiceManager.of_environment()
        self._signal_count = 0
        self._background: set[asyncio.Task[None]] = set()
        self._load_error: Exception | None = None

    def _new_engine(self) -> Engine:
        return Engine(self._settings.engine_config())

    def run(self) -> int:
        """Serve until told to stop. Raises: engine_ext's ModelLoadError."""
        write_stacks_on_signal()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._run())
        finally:
            self._native_log.flush(_LAST_LINES_S)
        if self._load_error is not None:
            raise self._load_error
        return 0

    async def _run(self) -> None:
        self._handle_signals(asyncio.get_running_loop())
        self._server.on_started = lambda: self._start(self._tell_progress())
        try:
            await self._server.serve(sockets=self._listeners.sockets)
        finally:
            for task in self._background:
                task.cancel()
        if self._host.engine.is_lost:
            self._exit_without_engine()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- start ----------------------------------------------------------------------------------

    async def _tell_progress(self) -> None:
        began_s = time.monotonic() if self._load_began_s is None else self._load_began_s
        scheme = "http" if self._settings.ssl_cert_file is None else "https"
        urls = self._listeners.urls(scheme=scheme, prefix=self._settings.api_prefix)
        build = read_build_info()
        self._log.info(
            "start",
            version=build.version,
            llama_cpp=build.llama_commit,
            profile=build.profile,
            url=", ".join(urls),
            model=str(self._settings.model),
        )
        self._manager.tell(mainpid=os.getpid())
        self._tell_prompt_cache()
        loaded: asyncio.Task[None] = self._app.state.loaded
        draw = partial(self._native_log.write, LogTarget.STDERR)
        progress = LoadProgress(self._settings, self._log, draw)
        while not loaded.done():
            await asyncio.wait([loaded], timeout=progress.every_s)
            if not loaded.done():
                progress.show(self._engine.load_progress)
                self._look_at_load()
        progress.clear()
        if loaded.cancelled():
            return
        error = loaded.exception()
        if error is not None:
            self._load_error = error if isinstance(error, Exception) else RuntimeError(str(error))
            self._server.end()
            return
        model, placement = self._engine.model, self._engine.placement
        decode_loop = self._engine.decode_loop
        has_gpu = read_build_info().gpu != ""
        if self._settings.gpu_layers > 0 and not has_gpu:
            self._log.warning("--gpu-layers has no effect: this build has no GPU support")
        if has_gpu:
            tell_loop(self._log, decode_loop)
            tell_kernels(self._log, decode_loop, self._settings.kernels)
        if self._settings.kernels == "own" and decode_loop.loop == "host":
            self._log.warning("--kernels has no effect: the GPU does not run the token loop")
        if self._settings.n_slots > 1 and model.why_prefixes_are_not_shared:
            self._log.info(
                "slots do not share common prefixes", reason=model.why_prefixes_are_not_shared
            )
        tell_memory(self._log, decode_loop, self._engine.stats().n_window_graphs)
        tell_threads(self._log, placement)
        self._log.info(
            "ready",
            model=self._host.names.first,
            n_ctx=model.n_ctx,
            n_slots=self._settings.n_slots,
            decode_loop=decode_loop.loop,
            threads=placement.n_threads,
            decode_core=placement.decode_cores[0] if placement.is_pinned else None,
            seconds=round(time.monotonic() - began_s, 2),
        )
        self._manager.tell(ready=1, status=self._serving())
        if not (self._settings.logs_json or self._settings.log_disable):
            line = curl_line(urls[0], self._settings)
            self._native_log.write(LogTarget.STDERR, line + "\n")

    def _tell_prompt_cache(self) -> None:
        settings, n_bytes = self._settings, self._engine.config.cache_bytes_max
        if n_bytes == 0:
            self._log.info("prompt cache off (--cache-ram)")
            return
        asked = "no limit" if settings.cache_ram < 0 else f"{settings.cache_ram} MiB"
        if settings.cache_ram < 0 or n_bytes < settings.cache_ram << 20:
            self._log.info("prompt cache: half of the free memory", asked=asked, mib=n_bytes >> 20)
        else:
            self._log.info("prompt cache", mib=n_bytes >> 20)
        if settings.cache_idle_slots:
            # llama-server's tests look for its mark in the log.
            self._log.debug(
                "idle slots are saved to the prompt cache: __TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__"
            )

    # -- signals --------------------------------------------------------------------------------

    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in _ENDING:
            loop.add_signal_handler(number, partial(self._on_signal, number))
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _on_hangup(self) -> None:
        if sys.stderr.isatty():
            self._on_signal(signal.SIGHUP)
            return
        try:
            open_log_file(self._settings, self._native_log)
        except LogFileError as error:
            self._log.error(str(error))
        else:
            self._log.info("the log file is opened again")

    # -- end ------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        self._signal_count += 1
        if self._signal_count > 1:
            os._exit(128 + number)
        self._log.info("stopping", signal=signal.Signals(number).name)
        self._gate.phase = Phase.DRAINING
        self._manager.tell(stopping=1, status="lets running requests end")
        self._start(self._drain())

    async def _drain(self) -> None:
        """Let running requests end, up to the limit; then stop the engine, which ends the rest."""
        admission = self._admission
        try:
            async with asyncio.timeout(self._settings.drain_timeout):
                await admission.idle()
        except TimeoutError:
            self._log.warning("drain timeout", running=admission.n_running)
            admission.refuse_waiting(unavailable("the server is stopping"))
            await self._host.engine.stop()
        self._server.end()

    def _look_each_second(self) -> None:
        if self._gate.phase is Phase.READY:
            self._heap.look()
        self._look_after_engine()
        self._report()

    # -- what a service manager is told ---------------------------------------------------------

    def _report(self) -> None:
        """Once a second: where the server is, and that it is well as long as the engine moves."""
        phase = self._gate.phase
        is_moving = phase is Phase.LOADING or self._watch.is_moving(self._host.engine)
        if phase is Phase.LOADING:
            progress = f"{self._engine.load_progress:.0%}"
            self._manager.tell(status=f"loads {self._settings.model.name}: {progress}")
        elif not is_moving and phase is not Phase.FAILED:
            seconds = f"{self._watch.silence_s:.0f} s"
            self._manager.tell(status=f"the decode thread has not moved for {seconds}")
        elif phase is Phase.READY:
            self._manager.tell(status=self._serving())
        if is_moving and phase is not Phase.FAILED:
            self._manager.beat()

    def _serving(self) -> str:
        return f"serves {self._host.names.first}"

    # -- end without the engine -----------------------------------------------------------------

    def _look_at_load(self) -> None:
        why = self._watch.look_at_load(self._engine)
        if why is not None:
            self._engine.abandon(why)  # the load fails by it

    def _look_after_engine(self) -> None:
        gate = self._gate
        if gate.phase in (Phase.LOADING, Phase.FAILED):
            return
        why = self._watch.look(self._host.engine)
        if why is not None:
            gate.phase, gate.failure = Phase.FAILED, why
            self._log.error("the engine is lost", reason=why)
            self._manager.tell(stopping=1, status=f"the engine is lost: {why}")
            self._start(self._end_without_engine(why))

    async def _end_without_engine(self, why: str) -> None:
        """Tell every client, as far as they listen, and end. It takes no longer than a stop."""
        # The loop may come to stand too, and a client may not read.
        last = threading.Timer(self._settings.stop_timeout + GRACEFUL_S, os._exit, (ENGINE_LOST,))
        last.daemon = True
        last.start()
        self._host.engine.abandon(why)
        self._admission.refuse_waiting(unavailable("the engine has failed"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.stop_timeout):
                await self._admission.idle()
        self._server.end()

    def _exit_without_engine(self) -> NoReturn:
        # An ordinary end would wait for the engine's threads, and CUDA's end for the GPU.
        self._log.error("ended without the engine", reason=self._host.engine.error)
        self._listeners.close()
        self._native_log.flush(_LAST_LINES_S)
        os._exit(ENGINE_LOST)
