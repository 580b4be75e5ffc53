"""Requests made from GET /openapi.json, by schemathesis: answers are as it says, and no 500."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.server import Server, serving

N_EXAMPLES: Final = 6
NATIVE: Final = ("/completion", "/completions", "/infill")
CHECKS: Final = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("slots")
    # A random request may ask for any number of tokens: a small context ends it.
    with serving(
        *("-t", "1", "-np", "2", "--slot-save-path", str(folder), "--props", "-c", "256")
    ) as running:
        yield running


def is_whole(case: Any, read: Callable[[], Any]) -> bool:
    """A completion has all its fields unless the request selects some of them."""
    body = case.body if isinstance(case.body, dict) else {}
    if case.path not in NATIVE or body.get("stream") or body.get("response_fields") is not None:
        return True
    answer = read()
    return all("content" in each for each in (answer if isinstance(answer, list) else [answer]))


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described(server: Server, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    statuses: set[int] = set()
    n_operations = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        n_operations += 1

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=N_EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any) -> None:
            response = case.call(base_url=server.url, timeout=60)
            statuses.add(response.status_code)
            case.validate_response(response, checks=CHECKS)
            assert response.status_code != 200 or is_whole(case, response.json), response.text
            assert response.status_code != 500, response.text

        try:
            check()
        except Unsatisfiable:  # any text is right in a path or query
            assert mode is GenerationMode.NEGATIVE
            assert not operation.body or operation.label == "POST /v1/streams/lookup"
    assert n_operations >= 50
    assert {200, 400, 501} <= statuses
