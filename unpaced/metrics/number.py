"""A metric that is one number, without labels."""

from typing import Literal

from prometheus_client.core import Metric
from prometheus_client.samples import Sample


class NumberFamily(Metric):
    """The library's, but that its name, which is a constant, is not checked at each scrape, and its
    sample is made when somebody asks for it: most families are such, and `Exposition` writes them
    without."""

    def __init__(self, kind: Literal["counter", "gauge"], name: str, text: str, n: float) -> None:
        # Not the library's own, which checks.
        self.type, self.name, self.documentation, self.unit = kind, name, text, ""
        self.value = float(n)

    @property
    def samples(self) -> list[Sample]:
        """The one; a counter's name is `name` and `_total`."""
        ending = "_total" if self.type == "counter" else ""
        return [Sample(f"{self.name}{ending}", {}, self.value)]

    @samples.setter
    def samples(self, _: list[Sample]) -> None:
        raise AttributeError("a number has one sample")
