"""scripts/hops.py knows our functions, those of the server and of the engine, from others'."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

from engine_ext import Engine
from unpaced.http.wire.protocol import LimitedHttpProtocol

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "hops.py"


def hops() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hops", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_functions_of_ours_have_names_and_others_none() -> None:
    name_of = hops().name_of
    ours = name_of(LimitedHttpProtocol.connection_lost.__code__)
    assert ours is not None and ours.startswith("unpaced.http.wire.")
    assert name_of(Engine.submit.__code__) == "engine_ext.engine.engine.Engine.submit"
    assert name_of(json.dumps.__code__) is None
