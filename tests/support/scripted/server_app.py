"""The application on a scripted engine."""

from typing import Any, cast

from starlette.applications import Starlette

from engine_ext import Engine
from tests.support.scripted.fake_engine import FakeEngine
from unpaced.http.gate import Gate, Phase
from unpaced.process.app import create_app
from unpaced.settings import Settings


def make_app(engine: FakeEngine, **settings: Any) -> Starlette:
    """A ready application; no lifespan runs."""
    settings.setdefault("parallel", 1)
    app = create_app(cast(Engine, engine), Settings(**settings))
    gate: Gate = app.state.gate
    gate.phase = Phase.READY
    return app
