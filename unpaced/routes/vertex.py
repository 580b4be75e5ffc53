"""Google Vertex AI's contract for containers: its environment variables.

Source: https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements and
llama.cpp 0c1e57098 tools/server/server-http.cpp:84-110.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class VertexAi:
    """`health_path` is empty where none is asked for beside /health."""

    port: int
    health_path: str
    predict_path: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """What AIP_* ask for; None unless AIP_MODE is PREDICTION.

        Raises: ValueError for a port that is not valid.
        """
        if environment.get("AIP_MODE") != "PREDICTION":
            return None
        port = environment.get("AIP_HTTP_PORT") or "8080"
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"AIP_HTTP_PORT: not a port: {port!r}")
        return cls(
            port=int(port),
            health_path=_with_slash(environment.get("AIP_HEALTH_ROUTE", "")),
            predict_path=_with_slash(environment.get("AIP_PREDICT_ROUTE") or "/predict"),
        )


def _with_slash(path: str) -> str:
    return path if not path or path.startswith("/") else "/" + path
