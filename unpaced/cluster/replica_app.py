"""The application as one replica has it: with a model that is loaded before the first request."""

import shlex

from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from unpaced.cli.flags import read_command_line
from unpaced.http.gate import Gate, Phase
from unpaced.process.app import create_app
from unpaced.process.early_load import EarlyLoad
from unpaced.process.engine_watch import EngineWatch
from unpaced.request.model_host import ModelHost
from unpaced.settings import Settings, SettingsError

HEALTH_CHECK_S = 5.0
"""How often somebody looks whether a replica is well."""


def read_flags(flags: str, n_threads: int) -> Settings:
    """The settings of a replica: `unpaced serve`'s flags, in one string.

    Unless they say otherwise it has `n_threads`, pinned nowhere: replicas of one machine see the
    same cores. Raises: SettingsError.
    """
    own = ["-t", str(n_threads), "--no-pin"]
    command = read_command_line([*own, *shlex.split(flags)])
    if command.action != "serve":
        raise SettingsError(f"not for replicas: {command.action}")
    settings = command.settings
    if settings.hf_repo or settings.model_url:
        from unpaced.download.model import with_local_model

        return with_local_model(settings, may_download=True)
    return settings


class ReplicaApp:
    """An ASGI application whose start ends when the model is loaded. One a process.

    Raises: LogFileError; engine_ext's EngineError.
    """

    def __init__(self, settings: Settings) -> None:
        load = EarlyLoad(settings)
        self._native_log = load.native_log  # lives as long as the engine
        self._app: Starlette = create_app(load.engine, settings)
        self._watch = EngineWatch(settings.stall_timeout, HEALTH_CHECK_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_when_loaded(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                try:
                    await self._app.state.loaded
                except Exception as error:
                    message = {"type": "lifespan.startup.failed", "message": str(error)}
            await send(message)

        await self._app(scope, receive, send_when_loaded)

    def why_ill(self) -> str | None:
        """Why this replica is to be replaced; None: it is well. Only once it has been loaded.

        Requests of one that is ill end with an error, and it takes no further ones.
        """
        gate: Gate = self._app.state.gate
        if gate.phase is Phase.FAILED:
            return gate.failure
        host: ModelHost = self._app.state.host
        why = self._watch.look(host.engine)
        if why is not None:
            gate.phase, gate.failure = Phase.FAILED, why
            host.engine.abandon(why)
        return why
