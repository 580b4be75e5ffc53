"""Every log of these tests begins with the code that they ran."""

import pytest

from tests.gpu.card_code import libraries
from tests.gpu.test_device_loop import has_device


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What the installed libraries hold; the loop's own report is in test_cards.py's output."""
    if not has_device():
        return []
    return [f"device code: {name}: {code}" for name, code in libraries().items()]
