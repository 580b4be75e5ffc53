"""The pages by task name flags, metrics and routes that there are."""

import re
from pathlib import Path

import pytest

from tests.support.server import serving
from unpaced.cli.flags import claimed_flags
from unpaced.process.app import described_routes

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = (
    "daily", "kubernetes", "migrating", "quickstart", "scale", "security", "troubleshooting",
    "tuning",
)  # fmt: skip
# Of other programs: what a table has on its left side is theirs, and these.
FOREIGN = {
    "--dry-run",
    "--from-literal",
    "--gpus",
    "--help",
    "--modelfile",
    "--print-config",
    "--version",
}


def quoted(page: str) -> list[str]:
    """What stands in backticks; of tables that name another server without its column."""
    text = re.sub(r"^```.*?^```", "", (DOCS / f"{page}.md").read_text(), flags=re.M | re.S)
    if page == "migrating":
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.M)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES)
def test_every_flag_is_the_servers(page: str) -> None:
    words = [
        word for quote in quoted(page) for word in quote.split() if not quote.startswith("ray")
    ]
    named = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    known = set(claimed_flags()) | FOREIGN
    assert named - known == set()


def test_every_metric_is_the_servers() -> None:
    named = {
        name
        for page in PAGES
        for quote in quoted(page)
        for name in re.findall(r"\bunpaced_[a-z_]+", quote)
    }
    with serving() as server:
        shown = server.client.get("/metrics").text
    assert len(named) > 8
    lacking = {name for name in named if f"\n# HELP {name} " not in shown}
    assert {name for name in lacking if f"\n{name}" not in shown} == set()


def test_every_route_is_the_servers() -> None:
    routes = {route.path for group in described_routes() for route in group.served("")}
    named = {
        path.rstrip("?")
        for page in PAGES
        for quote in quoted(page)
        for path in re.findall(r"^(?:GET |POST )?(/(?:v1|health|metrics|slots|props)[\w/]*)", quote)
    }
    named = {re.sub(r"/slots/N", "/slots/{slot}", path) for path in named}
    known = {re.sub(r"{(\w+):\w+}", r"{\1}", path) for path in routes}
    assert len(named) > 5 and named - known - {"/v1"} == set()
