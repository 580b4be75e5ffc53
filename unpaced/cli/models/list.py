"""`unpaced list`: the models in the cache, and what room they take."""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Final

from unpaced.cli.models.sizes import show_bytes
from unpaced.cli.terminal_text import printable_line

_DAY_S: Final = 86400


def list_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced list",
        description="List the models in the cache: Hugging Face's, and that of URLs.",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array, with the paths")
    return parser


def list_models(arguments: Sequence[str]) -> int:
    """Print a table, or nothing but a hint where there is no model."""
    from unpaced.download.cached import cached_models

    given = list_parser().parse_args(arguments)
    models = cached_models()
    if given.json:
        fields = [
            {
                "repo": model.repo or None,
                "file": model.path.name,
                "path": str(model.path),
                "bytes": model.n_bytes,
                "whole": model.is_whole,
                "last_used": int(model.used_s),
            }
            for model in models
        ]
        print(json.dumps(fields, indent=2))
        return 0
    if not models:
        print("no models in the cache; unpaced pull USER/REPO[:QUANT] downloads one")
        return 0
    rows = [("MODEL", "FILE", "SIZE", "USED")]
    rows += [
        (
            printable_line(model.repo or str(model.path)),
            printable_line(model.path.name) + ("" if model.is_whole else " (parts are missing)"),
            show_bytes(model.n_bytes),
            _ago(model.used_s),
        )
        for model in models
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for name, file, size, used in rows:
        print(
            f"{name:<{widths[0]}}  {file:<{widths[1]}}  {size:>{widths[2]}}  {used}".rstrip(),
        )
    print(f"together {show_bytes(sum(model.n_bytes for model in models))}")
    return 0


def _ago(used_s: float) -> str:
    days = int((time.time() - used_s) // _DAY_S)
    return "today" if days <= 0 else f"{days} day{'s' if days > 1 else ''} ago"
