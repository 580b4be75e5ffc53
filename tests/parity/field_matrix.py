#!/usr/bin/env python3
"""Every field of a completion, absent to wrong, beside llama-server: statuses and what is honoured.

    python -m tests.parity.field_matrix --peer FOLDER --record    # the real server's answers
    python -m tests.parity.field_matrix --out docs/compat         # ours against them

An answer is the status, and of a native response the value that `generation_settings` shows for
the field: a value that is clamped, replaced or dropped shows there.
"""

import argparse
import contextlib
import http.client
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.parity.field_values import Case, body_of, make_cases
from tests.parity.pair import Answer, serving_ours, serving_peer, tiny_model

HERE: Final = Path(__file__).resolve().parent
RECORDED: Final = HERE / "field_answers.json"
DIFFERENCES: Final = HERE / "field_differences.json"
FLAGS: Final = ("-c", "512", "-np", "2", "-n", "8", "-t", "1")
DIED: Final = 0
_SHOWN_AS: Final = {
    "max_completion_tokens": "n_predict",
    "max_tokens": "n_predict",
    "logprobs": "n_probs",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status, 0 where the server did not answer any more; the setting shown, or the message."""

    status: int
    shown: Any = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """Cases that differ on purpose: fields and statuses they are allowed for, and why."""

    fields: frozenset[str]
    peer: int
    ours: int
    reason: str
    values: list[Any] | None = None
    paths: frozenset[str] = frozenset()

    def covers(self, case: Case, peer: Outcome, ours: Outcome) -> bool:
        """Whether it explains this case."""
        path, name, value = case
        return (
            (name in self.fields or "*" in self.fields)
            and (peer.status, ours.status) == (self.peer, self.ours)
            and (self.values is None or any(same(value, allowed) for allowed in self.values))
            and (not self.paths or path in self.paths)
        )


def same(a: Any, b: Any) -> bool:
    """Equality in which true is not 1."""
    return json.dumps(a) == json.dumps(b)


def read_differences() -> list[Difference]:
    """The listed ones."""
    return [
        Difference(
            frozenset(entry["fields"]),
            entry["peer"],
            entry["ours"],
            entry["reason"],
            entry.get("values"),
            frozenset(entry.get("paths", ())),
        )
        for entry in json.loads(DIFFERENCES.read_text())
    ]


def outcome_of(case: Case, answer: Answer) -> Outcome:
    """What counts of an answer."""
    _, name, _ = case
    if answer.status != 200:
        error = answer.body.get("error", {}) if isinstance(answer.body, dict) else {}
        return Outcome(answer.status, message=str(error.get("message", answer.body))[:160])
    settings = answer.body.get("generation_settings", {}) if isinstance(answer.body, dict) else {}
    return Outcome(200, settings.get(_SHOWN_AS.get(name, name)))


def ask_all(cases: Iterable[Case], post: Callable[[str, Any], Answer]) -> list[Outcome]:
    """Outcomes in order. Raises: ConnectionError or HTTPException if the server dies."""
    return [outcome_of(case, post(case[0], body_of(*case))) for case in cases]


def record(folder: Path, cases: list[Case]) -> list[Outcome]:
    """The real server's outcomes. Where it dies it is started anew for the next case."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(cases):
        with (
            serving_peer(folder, tiny_model("llama-spm"), *FLAGS, timeout_s=10) as peer,
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            while len(outcomes) < len(cases):
                case = cases[len(outcomes)]
                outcomes.append(outcome_of(case, peer.post(case[0], body_of(*case))))
        if len(outcomes) < len(cases):
            print("no answer:", json.dumps(cases[len(outcomes)]), flush=True)
            outcomes.append(Outcome(DIED))
    return outcomes


def our_outcomes(cases: list[Case]) -> list[Outcome]:
    """Our server's outcomes."""
    with serving_ours(tiny_model("llama-spm"), *FLAGS) as connection:
        return ask_all(cases, connection.post)


def read_recorded() -> list[tuple[Case, Outcome]]:
    """The real server's outcomes by case."""
    rows = json.loads(RECORDED.read_text())
    return [((row[0], row[1], row[2]), Outcome(row[3], row[4], row[5])) for row in rows]


def unexplained(
    rows: list[tuple[Case, Outcome]], ours: list[Outcome], differences: list[Difference]
) -> list[tuple[Case, Outcome, Outcome]]:
    """Cases with another status or another setting that no listed difference covers."""
    found = []
    for (case, peer), mine in zip(rows, ours, strict=True):
        if mine.status == peer.status and same(mine.shown, peer.shown):
            continue
        if not any(difference.covers(case, peer, mine) for difference in differences):
            found.append((case, peer, mine))
    return found


def main() -> int:
    """Command line. Exit status 1 if a case differs without a listed reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for fields.json")
    options = parser.parse_args()
    if options.record:
        cases = make_cases()
        outcomes = record(options.peer, cases)
        lines = [
            json.dumps([*case, one.status, one.shown, one.message], ensure_ascii=True)
            for case, one in zip(cases, outcomes, strict=True)
        ]
        RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{len(cases)} cases recorded")
        return 0
    rows = read_recorded()
    ours = our_outcomes([case for case, _ in rows])
    left = unexplained(rows, ours, read_differences())
    for case, peer, mine in left:
        print(json.dumps([*case]), f"peer {peer.status} {json.dumps(peer.shown)} {peer.message!r}")
        print(f"    ours {mine.status} {json.dumps(mine.shown)} {mine.message!r}")
    n_same = sum(
        mine.status == peer.status and same(mine.shown, peer.shown)
        for (_, peer), mine in zip(rows, ours, strict=True)
    )
    n_died = sum(peer.status == DIED for _, peer in rows)
    print(f"{len(rows)} cases: {n_same} as llama-server, {len(rows) - n_same - len(left)} listed")
    print(f"differences, {len(left)} unexplained; llama-server died at {n_died}")
    if options.out:
        figures = {
            "n_cases": len(rows),
            "n_equal": n_same,
            "n_listed": len(rows) - n_same - len(left),
            "n_unexplained": len(left),
            "n_peer_died": n_died,
            "listed": [
                [*case, peer.status, mine.status]
                for (case, peer), mine in zip(rows, ours, strict=True)
                if mine.status != peer.status
            ],
        }
        (options.out / "fields.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
