"""How the live view reads a scrape: rates, quantiles, graphics cards; in the browser itself."""

from typing import Any, Final

import pytest

from tests.support.page.page_user import PageUser

_BEFORE: Final = """# HELP a_total text
# TYPE a_total counter
a_total 10
gone_total 5
h_bucket{le="0.1"} 4
h_bucket{le="0.2"} 4
h_bucket{le="+Inf"} 4
"""
_AFTER: Final = """a_total 40
h_bucket{le="0.1"} 4
h_bucket{le="0.2"} 14
h_bucket{le="+Inf"} 14
odd{reason="a \\"b\\" \\\\ c",x=""} 1e-05
new_total 3
"""
_CARDS: Final = """unpaced_gpu_info{gpu="0",name="NVIDIA H200",uuid="u"} 1
unpaced_gpu_memory_used_bytes{gpu="0"} 2147483648
unpaced_gpu_utilization_ratio{gpu="0"} 0.93
unpaced_gpu_power_watts{gpu="0"} 512.3
unpaced_gpu_temperature_celsius{gpu="0"} 61
unpaced_gpu_clock_sm_hertz{gpu="0"} 1980000000
unpaced_gpu_watch_up 1
unpaced_gpu_reading_age_seconds 0.4
"""


def change(user: PageUser, expression: str) -> Any:
    script = (
        "const given = arguments; return (async () => {"
        "const [{ Scrape }, { Change }] = await Promise.all([import('./page/live/exposition.js'),"
        " import('./page/live/change.js')]);"
        "const after = new Scrape(given[1], 3000);"
        "const change = new Change(new Scrape(given[0], 1000), after);"
    )
    return user.browser.run(f"{script} return {expression}; }})()", _BEFORE, _AFTER)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("change.rate('a_total')", 15),
        ("change.growth('new_total')", 3),
        ("change.growth('gone_total') ?? null", None),
        ("change.quantile('h', 0.5)", 0.15),
        ("change.quantile('none', 0.5) ?? null", None),
        ("after.all('odd')[0].labels.reason", 'a "b" \\ c'),
        ("after.value('odd')", 1e-05),
    ],
)
def test_what_happened_between_two_scrapes(user: PageUser, expression: str, value: Any) -> None:
    found = change(user, expression)
    assert found == (pytest.approx(value) if isinstance(value, float) else value)


def test_cards_are_shown_as_the_server_tells_of_them(user: PageUser) -> None:
    show = (
        "const text = arguments[0]; return (async () => {"
        "const [{ Scrape }, { showCards }] = await Promise.all(["
        "import('./page/live/exposition.js'), import('./page/live/graphics_cards.js')]);"
        "showCards(new Scrape(text, 0)); })()"
    )
    user.browser.run(show, _CARDS)
    assert user.browser.text("#cards h4") == "GPU 0 NVIDIA H200"
    assert user.browser.text("#cards dd").split("\n") == [
        "2.0 GiB", "93 %", "512 W", "61 °C", "1980 MHz",
    ]  # fmt: skip
    user.browser.run(show, "unpaced_gpu_watch_up 0\n")
    assert user.browser.run("return document.getElementById('cards-box').hidden")
