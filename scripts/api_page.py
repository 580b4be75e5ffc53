"""Writes docs/api-reference.md from the OpenAPI document that the server answers.

`python scripts/api_page.py` rewrites the page; `--check` only says whether it is up to date (exit 1
if not).
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.schema_tables import fields_of, type_of  # noqa: E402
from unpaced.description.document import document  # noqa: E402
from unpaced.process.app import described_routes  # noqa: E402

PAGE = ROOT / "docs" / "api-reference.md"
INTRO = """# API reference

Written by `scripts/api_page.py` from what `GET /openapi.json` answers; `GET /docs` shows it in a
browser. [api.md](api.md) says what holds for all routes, and how it is held true.

Keys go into `Authorization: Bearer KEY` or `X-Api-Key: KEY`, where the server has some; a route
without a lock (🔒) needs none. Fields without "required" may be left out.
"""


def describe() -> dict[str, Any]:
    """The document of a server with default flags and an API key."""
    found: dict[str, Any] = json.loads(document(described_routes(), "", version="", has_keys=True))
    return found


def body_of(operation: dict[str, Any]) -> str:
    """What a route takes, in a sentence."""
    if "requestBody" not in operation:
        return ""
    (content,) = operation["requestBody"]["content"].values()
    return f" Body: {type_of(content['schema'])}."


def answers_of(operation: dict[str, Any]) -> str:
    """What a route answers: its 200's types, and the statuses of refusals."""
    good = operation["responses"].get("200", {}).get("content", {})
    kinds = []
    for media_type, content in good.items():
        schema = content["schema"].get("contentSchema", content["schema"])
        as_events = " as events" if media_type == "text/event-stream" else ""
        kinds.append(type_of(schema) + as_events)
    refusals = ", ".join(status for status in operation["responses"] if status != "200")
    answer = f" Answer: {'; '.join(kinds)}." if kinds else ""
    return f"{answer} Else: {refusals}."


def page() -> str:
    """The page's text."""
    whole = describe()
    routes: dict[str, dict[str, list[str]]] = {}
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            lock = " 🔒" if operation.get("security") else ""
            told = f"{operation['summary']} {operation.get('description', '')}".strip()
            told = " ".join((told + body_of(operation) + answers_of(operation)).split())
            name = f"`{method.upper()} {path}`{lock}"
            routes.setdefault(operation["tags"][0], {}).setdefault(told, []).append(name)
    parts = [INTRO, "## Routes\n"]
    for tag, told_of in sorted(routes.items()):
        lines = [f"* {', '.join(names)}: {told}" for told, names in told_of.items()]
        parts += [f"### Routes: {tag}\n", "\n".join(lines) + "\n"]
    parts.append("## Bodies and answers\n")
    for name, schema in sorted(whole["components"]["schemas"].items()):
        about = schema.get("description", "")
        parts += [f"### {name}\n", *([about + "\n"] if about else []), fields_of(schema)]
    return "\n".join(parts)


def main() -> int:
    """0, or 1 if the page is not what it would be; it is printed."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE.relative_to(ROOT)} is out of date: python scripts/api_page.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
