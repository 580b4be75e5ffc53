"""A random history of requests against the real `Admission`, and what must hold at each step.

The engine's part is played: it tells a slot, later an end, in any order. Nothing waits or computes,
so that a hundred thousand histories take half a minute.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from unpaced.completion.admission import Admission, Ticket
from unpaced.completion.fair_queue import AGEING_TURNS, TURN_TOKENS
from unpaced.http.errors import ApiError

_DECODED_MAX = 40


@dataclass(slots=True)
class _Wait:
    """What a ticket saw while it waited. `turns`: of its own client since it came."""

    older: int
    turns: int = 0


@dataclass(slots=True)
class _Pair:
    """How far two clients that both wait have come apart since they do, in tokens."""

    least: int
    most: int


class QueueTrace:
    """Plays one history of `n_events`; `play` raises AssertionError where something does not hold.

    Chosen by the seed: slots, limits, clients, how long prompts are, how many are pinned to a slot,
    how much of a prompt is in a cache, how priorities are spread.
    """

    def __init__(self, seed: int, n_events: int) -> None:
        self._random = random = Random(seed)
        self._n_events = n_events
        self._n_slots = random.choice((1, 1, 2, 4))
        self._max_requests = random.choice((0, 1, 3, 8, 20))
        self._max_tokens = random.choice((0, 0, 50, 6000))
        self._n_refused = 0
        self.admission = Admission(
            self._n_slots, self._max_requests, self._max_tokens, self._on_refusal
        )
        every: list[int | str] = [0, "10.0.0.1", 2, 3]
        self._clients = every[: random.randint(1, 4)]
        self._lengths = {c: random.choice(((1, 20), (10, 10), (900, 5000))) for c in self._clients}
        self._pinned = random.choice((0.0, 0.0, 0.3))
        self._caches = random.random() < 0.3
        self._priorities = random.choice(((0,), (0,), (0, 1), (-5, 0, 10**12)))
        self._waiting: dict[Ticket, _Wait] = {}
        self._running: list[Ticket] = []  # not yet in a slot: slot < 0
        self._n_ended = 0
        self._n_entered = 0
        self._served: Counter[int | str] = Counter()
        self._pairs: dict[tuple[int | str, int | str], _Pair] = {}
        self._out_of_order: Counter[int | str] = Counter()
        self._turns: Counter[int | str] = Counter()

    def play(self) -> None:
        """The history, and then everything to its end."""
        for _ in range(self._n_events):
            self._happen(self._random.random())
            self._check()
        assert set(self.admission.waiting()) == self._waiting.keys()
        n_left = len(self._waiting) + len(self._running)
        for _ in range(2 * n_left):  # a start and an end each
            self._start()
            self._finish(any_of_them=False)
            self._check()
        assert not self._waiting, "somebody was never served"
        assert not self._running
        assert self.admission.is_idle
        assert self._n_ended == self._n_entered

    def _happen(self, chance: float) -> None:
        if chance < 0.4:
            self._enter()
        elif chance < 0.7:
            self._start()
        elif chance < 0.95:
            self._finish()
        else:
            self._leave()

    # -- what happens ---------------------------------------------------------------------------

    def _enter(self) -> None:
        random = self._random
        client = random.choice(self._clients)
        prompts = [
            random.randint(*self._lengths[client]) for _ in range(random.choice((1, 1, 1, 2, 5)))
        ]
        wanted = random.randint(0, 5) if random.random() < self._pinned else -1
        before = self._waits_by_client()
        tokens_before = self._tokens_by_client()
        free = self._n_slots - len(self._running)
        n_refused = self._n_refused
        try:
            tickets = self.admission.enter(
                prompts, client=client, priority=random.choice(self._priorities), wanted=wanted
            )
        except ApiError as error:
            assert error.status == 503
            assert self._n_refused == n_refused + 1
            self._check_refusal(client, prompts[free if wanted < 0 else 0 :], before, tokens_before)
            return
        given_up = [
            ticket for ticket in self._waiting if not ticket.is_waiting and not ticket.is_granted
        ]
        self._check_given_up(client, given_up, before, tokens_before, self._n_refused - n_refused)
        self._n_entered += len(tickets)
        for ticket in tickets:
            older = sum(other.request.client == client for other in self._waiting)
            self._waiting[ticket] = _Wait(older)
        self._note_grants()

    def _start(self) -> None:
        """The engine gives a slot to the first one that has none, as it does."""
        ticket = next((t for t in self._running if t.slot < 0), None)
        if ticket is None:
            return
        taken = {other.slot for other in self._running}
        wanted = ticket.request.wanted
        free = [slot for slot in range(self._n_slots) if slot not in taken]
        slot = self._random.choice(free) if wanted < 0 else wanted % self._n_slots
        assert slot in free, "it was let in although its slot is taken"
        n_cached = self._random.randint(0, ticket.n_prompt - 1) if self._caches else 0
        self._served[ticket.request.client] -= n_cached
        ticket.started(slot, n_cached)
        self._note_grants()

    def _finish(self, *, any_of_them: bool = True) -> None:
        started = [t for t in self._running if any_of_them or t.slot >= 0]
        if not started:
            return
        ticket = self._random.choice(started)
        n_decoded = self._random.randint(0, _DECODED_MAX)
        self._served[ticket.request.client] += n_decoded
        ticket.finished(n_decoded)
        self._running.remove(ticket)
        self._end(ticket)

    def _leave(self) -> None:
        if self._waiting:
            ticket = self._random.choice(list(self._waiting))
            del self._waiting[ticket]
            self._end(ticket)

    def _end(self, ticket: Ticket) -> None:
        self._n_ended += 1
        ticket.release()
        ticket.release()  # once more changes nothing
        self._note_grants()

    def _on_refusal(self) -> None:
        self._n_refused += 1

    # -- what must hold -------------------------------------------------------------------------

    def _note_grants(self) -> None:
        """Everyone who has got a slot just now, in the order of their coming."""
        granted = [ticket for ticket in self._waiting if ticket.is_granted]
        if not granted:
            return
        for ticket in granted:
            request, wait = ticket.request, self._waiting.pop(ticket)
            self._running.append(ticket)
            self._served[request.client] += ticket.n_prompt + TURN_TOKENS
            if request.wanted < 0 and not self._pinned:
                # Only older ones, and of every AGEING_TURNS turns those without one of them.
                assert wait.turns <= AGEING_TURNS * (wait.older + 1), "passed over too often"
        of_clients = Counter(ticket.request.client for ticket in granted)
        for ticket, wait in self._waiting.items():
            wait.turns += of_clients[ticket.request.client]
        for ticket in granted:
            self._check_order(ticket)

    def _check_order(self, ticket: Ticket) -> None:
        client, priority = ticket.request.client, ticket.request.priority
        self._turns[client] += 1
        passed = [
            other
            for other in self._waiting
            if other.request.client == client and other.request.wanted < 0
        ]
        if ticket.request.wanted < 0:
            for other in passed:
                if other.request.priority == priority:
                    assert other.number > ticket.number, "out of order within a client"
        if any(other.request.priority < priority for other in passed):
            self._out_of_order[client] += 1
            assert all(other.number > ticket.number for other in passed), "not the oldest one"

    def _check(self) -> None:
        admission = self.admission
        # More would be tickets that were given back.
        assert admission.n_running == len(self._running) <= self._n_slots
        assert admission.n_waiting == len(self._waiting) <= self._max_requests
        n_tokens = sum(ticket.n_prompt for ticket in self._waiting)
        assert admission.n_tokens_waiting == n_tokens
        assert not 0 < self._max_tokens < n_tokens
        assert admission.is_idle == (not self._waiting and not self._running)
        if len(self._running) < self._n_slots:
            assert all(t.request.wanted >= 0 for t in self._waiting), "a slot is left unused"
        for client, n in self._out_of_order.items():
            assert n <= self._turns[client] // AGEING_TURNS, "priority counts for too little"
        self._check_shares()

    def _check_shares(self) -> None:
        """Nobody who always waits is served much more than another one who does."""
        clients = list({t.request.client: 0 for t in self._waiting if t.request.wanted < 0})
        clients.sort(key=self._clients.index)
        if len(clients) < 2:
            self._pairs.clear()
            return
        pairs = {(a, b) for i, a in enumerate(clients) for b in clients[i + 1 :]}
        for pair in self._pairs.keys() - pairs:
            del self._pairs[pair]
        turn = max(high for _, high in self._lengths.values()) + TURN_TOKENS
        later = self._n_slots * (_DECODED_MAX + (turn if self._caches else 0))
        # At first one of them may owe all slots, later no more than a turn of its own.
        bound = (self._n_slots * turn + later) + (turn + later)
        for pair in pairs:
            apart = self._served[pair[0]] - self._served[pair[1]]
            seen = self._pairs.setdefault(pair, _Pair(apart, apart))
            seen.least, seen.most = min(seen.least, apart), max(seen.most, apart)
            assert seen.most - seen.least <= bound, "one client got more than its share"

    def _check_refusal(
        self,
        client: int | str,
        prompts: Sequence[int],
        waiting: Counter[int | str],
        tokens: Counter[int | str],
    ) -> None:
        """Nobody is refused within its share: a limit by the clients that would wait."""
        n_clients = len(waiting.keys() | {client})
        has_more = (waiting[client] + len(prompts)) * n_clients > self._max_requests
        has_longer = 0 < self._max_tokens < (tokens[client] + sum(prompts)) * n_clients
        assert has_more or has_longer, "refused within its share"

    def _check_given_up(
        self,
        client: int | str,
        given_up: Sequence[Ticket],
        waiting: Counter[int | str],
        tokens: Counter[int | str],
        n_refused: int,
    ) -> None:
        """Only those who have more than the one that comes lose places, and whole requests do."""
        requests = {ticket.request for ticket in given_up}
        assert n_refused == len(requests)
        for ticket in given_up:
            other = ticket.request.client
            assert other != client
            assert waiting[other] > waiting[client] or tokens[other] > tokens[client]
            del self._waiting[ticket]
            self._n_ended += 1
            ticket.release()
        assert not any(ticket.request in requests for ticket in self._waiting)

    def _waits_by_client(self) -> Counter[int | str]:
        return Counter(ticket.request.client for ticket in self._waiting)

    def _tokens_by_client(self) -> Counter[int | str]:
        tokens: Counter[int | str] = Counter()
        for ticket in self._waiting:
            tokens[ticket.request.client] += ticket.n_prompt
        return tokens
