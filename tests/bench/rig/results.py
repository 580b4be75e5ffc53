"""Where a program's figures go: beside the page that tells of them, in a folder of their own."""

import json
from pathlib import Path


def save_figures(out: Path, name: str, report: object) -> Path:
    """Write results/NAME.json of the folder `out`, which is made if needed."""
    path = out / "results" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path
