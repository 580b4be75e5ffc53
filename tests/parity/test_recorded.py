"""What a recorded llama-server answered, beside what we answer now."""

import json
import unicodedata
from pathlib import Path
from typing import Final

import pytest

from tests.parity.field_matrix import our_outcomes, read_differences, read_recorded, unexplained
from tests.parity.pair import FAMILIES
from tests.parity.text_parity import our_digests

TEXTS: Final = Path(__file__).resolve().parents[2] / "docs" / "compat" / "text.json"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_field_answers_as_llama_server_or_differs_for_a_listed_reason() -> None:
    rows = read_recorded()
    ours = our_outcomes([case for case, _ in rows])
    assert unexplained(rows, ours, read_differences()) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_and_texts_are_llama_servers(family: str) -> None:
    recorded = {report["family"]: report for report in json.loads(TEXTS.read_text())}[family]
    if recorded["unicode"] != unicodedata.unidata_version:
        pytest.skip(f"recorded with strings of Unicode {recorded['unicode']}'s characters")
    assert our_digests(family) == recorded["digests"]
