"""Whose turn it is among those that wait, and who may wait: policy alone. It knows no time, no
tasks and no sockets; `Admission` decides by it, and so does the simulation of its tests.

Clients share slots by tokens, as in the virtual token counter of Sheng et al., "Fairness in Serving
Large Language Models" (OSDI 2024): the free slot goes to the client that was served least. One that
comes anew is taken for as served as whoever had the last turn, so that nobody saves turns up. Of
two clients that always wait, none is served more than the other by more than what a slot is given
for at once (docs/slots.md, "Whose turn it is").
"""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from typing import Final, Generic, TypeVar

Client = int | str
"""The index of an API key, or where there are none the client's network."""

TURN_TOKENS: Final = 16
"""What a turn counts beside its tokens: nobody waits for ever behind requests of a token each."""
AGEING_TURNS: Final = 8
"""A client's turn out of so many is that of its request that has waited longest."""
_N_REMEMBERED: Final = 1024  # clients that do not wait; addresses can be many


class QueueFull(Exception):
    """What wants to wait finds no room; the text says which limit it meets."""


class Request:
    """What the places of one request have in common. `has_begun`: one of them has had a slot."""

    __slots__ = ("client", "has_begun", "priority", "wanted")

    def __init__(self, client: Client = 0, priority: int = 0, wanted: int = -1) -> None:
        """Make one. `priority`: of a client's requests the lower one is earlier. `wanted`: the slot
        that its sequences must have, modulo their number, or -1."""
        self.client = client
        self.priority = priority
        self.wanted = wanted
        self.has_begun = False


class Place:
    """One sequence that may wait for a slot. `n_prompt`: tokens of its prompt. `is_waiting`: it is
    in a queue. `number`: counts in the order of arrival there."""

    __slots__ = ("is_waiting", "n_prompt", "number", "request")

    def __init__(self, request: Request, n_prompt: int) -> None:
        self.request = request
        self.n_prompt = n_prompt
        self.is_waiting = False
        self.number = 0


P = TypeVar("P", bound=Place)


def _by_priority(place: Place) -> tuple[int, int]:
    return place.request.priority, place.number


def _by_readiness_to_leave(place: Place) -> tuple[bool, int, int]:
    return not place.request.has_begun, *_by_priority(place)


def _by_arrival(place: Place) -> int:
    return place.number


class _Line(Generic[P]):
    """Those of one client."""

    __slots__ = ("n_turns", "places")

    def __init__(self) -> None:
        self.places: list[P] = []  # by priority, then by arrival
        self.n_turns = 0

    def in_turn(self) -> Sequence[P]:
        """Who comes first in the next turn."""
        if (self.n_turns + 1) % AGEING_TURNS:
            return self.places
        return sorted(self.places, key=_by_arrival)


class FairQueue(Generic[P]):
    """`max_requests` places and `max_tokens` tokens of their prompts (0: no limit)."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        # By client, who had a turn longest ago first; one that waits for nothing is not in it.
        self._lines: dict[Client, _Line[P]] = {}
        self._served: dict[Client, int] = {}  # tokens; of others it is `_now`
        self._now = 0  # what the client of the last turn had been served before
        self._n_arrived = 0
        self._n_places = 0
        self._n_tokens = 0

    def __len__(self) -> int:
        return self._n_places

    @property
    def n_tokens(self) -> int:
        """Tokens of all prompts that wait."""
        return self._n_tokens

    def served(self, client: Client) -> int:
        """Tokens that the client counts as served; only differences mean something."""
        return self._served.get(client, self._now)

    # -- who may wait ---------------------------------------------------------------------------

    def make_room(self, client: Client, prompts: Sequence[int]) -> list[P]:
        """Prompts of so many tokens are about to wait, together. Returns whose requests lose their
        places to them, all places of each: they are in the queue no more.

        Where it is full the client with most in it gives way, its last request first, to one that
        has less, even with what comes. So nobody is refused for what others wait for who has no
        more than its share: the limit divided by the clients that wait.

        Raises: QueueFull, and nothing is changed.
        """
        given_up = self._who_gives_way(client, prompts)
        for place in given_up:
            self.remove(place)
        return given_up

    def check_room(self, client: Client, n_requests: int) -> None:
        """Whether so many could wait, whatever their prompts. Raises: QueueFull."""
        self._who_gives_way(client, [0] * n_requests)

    def _who_gives_way(self, client: Client, prompts: Sequence[int]) -> list[P]:
        n_places = self._n_places + len(prompts)
        n_tokens = self._n_tokens + sum(prompts)
        if n_places <= self._max_requests and not 0 < self._max_tokens < n_tokens:
            return []
        left = {name: list(line.places) for name, line in self._lines.items()}
        own = left.pop(client, [])
        n_own, n_own_tokens = len(own) + len(prompts), _n_tokens_of(own) + sum(prompts)
        given_up: list[P] = []
        while True:
            if n_places > self._max_requests:
                most = max(left, key=lambda name: len(left[name]), default=None)
                is_more = most is not None and len(left[most]) > n_own
                why = (
                    f"{n_places} requests would wait, "
                    f"{self._max_requests} may (--max-queue-requests)"
                )
            elif 0 < self._max_tokens < n_tokens:
                most = max(left, key=lambda name: _n_tokens_of(left[name]), default=None)
                is_more = most is not None and _n_tokens_of(left[most]) > n_own_tokens
                why = (
                    f"{n_tokens} prompt tokens would wait, "
                    f"{self._max_tokens} may (--max-queue-tokens)"
                )
            else:
                return given_up
            if most is None or not is_more:
                raise QueueFull(why)
            # A request that has begun is ended only where there is no other.
            last = max(left[most], key=_by_readiness_to_leave).request
            leaving = [place for place in left[most] if place.request is last]
            left[most] = [place for place in left[most] if place.request is not last]
            n_places -= len(leaving)
            n_tokens -= _n_tokens_of(leaving)
            given_up += leaving

    def add(self, places: Sequence[P]) -> None:
        """One request's places, behind all others of its client that have the same priority."""
        client = places[0].request.client
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = _Line()
            self._catch_up(client)
        for place in places:
            place.number = self._n_arrived
            self._n_arrived += 1
            place.is_waiting = True
            insort(line.places, place, key=_by_priority)
        self._n_tokens += _n_tokens_of(places)
        self._n_places += len(places)

    def remove(self, place: P) -> None:
        """It leaves without a turn; it must be in the queue."""
        line = self._lines[place.request.client]
        line.places.remove(place)
        place.is_waiting = False
        self._n_tokens -= place.n_prompt
        self._n_places -= 1
        if not line.places:
            del self._lines[place.request.client]

    # -- whose turn it is -----------------------------------------------------------------------

    def next(self, may_run: Callable[[P], bool]) -> P | None:
        """Take out whose turn it is, of those that may run; None: there is none."""
        held_up = []
        for client in sorted(self._lines, key=self.served):
            line = self._lines[client]
            place = next(filter(may_run, line.in_turn()), None)
            if place is not None:
                break
            held_up.append(client)
        else:
            return None
        self._lines[client] = self._lines.pop(client)  # last among equals
        line.n_turns += 1
        self.remove(place)
        self._count_turns([place])
        for other in held_up:  # who could not go on saves no turns up
            self._catch_up(other)
        return place

    def begin(self, places: Sequence[P]) -> None:
        """One request's places have got slots without having waited."""
        self._catch_up(places[0].request.client)
        self._count_turns(places)

    def _count_turns(self, places: Sequence[P]) -> None:
        request = places[0].request
        request.has_begun = True
        self._now = max(self._now, self.served(request.client))
        self.charge(request.client, sum(place.n_prompt + TURN_TOKENS for place in places))

    def charge(self, client: Client, n_tokens: int) -> None:
        """So many more tokens were computed for the client; negative: so many less."""
        self._served[client] = self.served(client) + n_tokens
        if len(self._served) > 2 * _N_REMEMBERED + len(self._lines):
            self._forget()

    def in_turn(self) -> Iterator[P]:
        """All of them in the order of their turns, as if any slot would do, as long as nothing
        changes."""
        lines: dict[Client, _Line[P]] = {}
        for client, line in self._lines.items():
            copy = lines[client] = _Line()
            copy.places, copy.n_turns = list(line.places), line.n_turns
        served = {client: self.served(client) for client in lines}
        while lines:
            client = min(lines, key=served.__getitem__)
            line = lines.pop(client)
            place = line.in_turn()[0]
            line.places.remove(place)
            line.n_turns += 1
            served[client] += place.n_prompt + TURN_TOKENS
            if line.places:
                lines[client] = line
            yield place

    def _catch_up(self, client: Client) -> None:
        self._served[client] = max(self.served(client), self._now)

    def _forget(self) -> None:
        """Of clients that wait for nothing the least served: they are none the worse for it."""
        others = [client for client in self._served if client not in self._lines]
        kept = {*self._lines, *nlargest(_N_REMEMBERED, others, key=self.served)}
        self._served = {client: n for client, n in self._served.items() if client in kept}


def _n_tokens_of(places: Sequence[Place]) -> int:
    return sum(place.n_prompt for place in places)
