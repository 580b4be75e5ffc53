"""Which core runs what."""

from itertools import chain
from pathlib import Path

import pytest

from engine_ext.loading.config import EngineConfig
from engine_ext.loading.model_options import ModelOptions
from engine_ext.loading.placement import Placement, place

MODEL = Path("model.gguf")
SMT = ("one thread a core", "siblings side by side", "siblings apart")


def machine(n_cores: int, smt: str) -> list[list[int]]:
    """Logical cores by physical core, as kernels number them."""
    match smt:
        case "siblings side by side":
            return [[2 * i, 2 * i + 1] for i in range(n_cores)]
        case "siblings apart":
            return [[i, i + n_cores] for i in range(n_cores)]
        case _:
            return [[i] for i in range(n_cores)]


def placed(cores: list[list[int]], **fields: object) -> Placement:
    return place(EngineConfig(model_path=MODEL, **fields), cores)  # type: ignore[arg-type]


def assert_nobody_spins_on_a_shared_core(placement: Placement, cores: list[list[int]]) -> None:
    everything = set(chain.from_iterable(cores))
    (decode_core,) = placement.decode_cores
    own = [core for (core,) in placement.worker_cores]
    assert len({decode_core, *own}) == 1 + len(own)
    assert decode_core not in placement.front_end_cores
    assert {decode_core, *own, *placement.front_end_cores} <= everything
    assert placement.front_end_cores
    if len(own) + 1 < len(everything):
        assert not set(own) & set(placement.front_end_cores)


@pytest.mark.parametrize("smt", SMT)
@pytest.mark.parametrize("n_cores", range(1, 65))
def test_every_thread_that_waits_by_spinning_has_a_core_of_its_own(n_cores: int, smt: str) -> None:
    cores = machine(n_cores, smt)
    placement = placed(cores)
    assert placement.n_threads == placement.n_threads_batch == n_cores
    assert len(placement.worker_cores) == n_cores - 1
    assert placement.is_pinned == (n_cores > 1 or smt != SMT[0])
    if placement.is_pinned:
        assert_nobody_spins_on_a_shared_core(placement, cores)
        # One a physical core while there are some.
        used = {*placement.decode_cores, *chain.from_iterable(placement.worker_cores)}
        assert all(len(used & set(group)) == 1 for group in cores)


@pytest.mark.parametrize("smt", SMT)
@pytest.mark.parametrize("n_cores", [1, 2, 3, 4, 8, 64])
@pytest.mark.parametrize("n_batch", [-1, 1, 2, 5, 8, 200])
@pytest.mark.parametrize("n_threads", [-1, 1, 2, 4, 200])
def test_numbers_of_threads_are_kept_up_to_that_of_cores(
    n_threads: int, n_batch: int, n_cores: int, smt: str
) -> None:
    cores = machine(n_cores, smt)
    n_logical = sum(map(len, cores))
    placement = placed(cores, n_threads=n_threads, n_threads_batch=n_batch)
    asked = n_threads if n_threads > 0 else n_cores
    asked_batch = n_batch if n_batch > 0 else asked
    assert placement.n_threads == min(asked, n_logical)
    assert placement.n_threads_batch == min(asked_batch, n_logical)
    assert placement.has_fewer_threads == (max(asked, asked_batch) > n_logical)
    assert len(placement.worker_cores) == max(placement.n_threads, placement.n_threads_batch) - 1
    assert placement.is_pinned == (n_logical > 1)
    if placement.is_pinned:
        assert_nobody_spins_on_a_shared_core(placement, cores)


def test_the_decode_thread_gets_the_last_core_and_the_front_end_those_of_the_workers() -> None:
    placement = placed([[2], [3], [6], [7]])
    assert placement.decode_cores == [7]
    assert placement.worker_cores == [[2], [3], [6]]
    assert placement.front_end_cores == [2, 3, 6]


def test_the_front_end_has_the_hyper_threads_that_are_left() -> None:
    placement = placed([[0, 4], [1, 5], [2, 6], [3, 7]])
    assert placement.decode_cores == [7]
    assert placement.worker_cores == [[0], [1], [2]]
    assert placement.front_end_cores == [4, 5, 6]


def test_the_hyper_threads_of_a_single_core_are_for_decode_and_front_end() -> None:
    placement = placed([[0, 1]])
    assert (placement.n_threads, placement.worker_cores) == (1, [])
    assert (placement.decode_cores, placement.front_end_cores) == ([1], [0])


def test_a_chosen_core_is_nobody_elses() -> None:
    placement = placed([[0], [1], [2]], decode_core=1)
    assert placement.decode_cores == [1]
    assert placement.worker_cores == [[0], [2]]
    assert placement.front_end_cores == [0, 2]


def test_without_pinning_threads_are_where_the_process_is() -> None:
    placement = placed([[0], [1]], pin=False)
    assert not placement.is_pinned
    assert (placement.decode_cores, placement.front_end_cores) == ([0, 1], [0, 1])
    assert (placement.n_threads, placement.worker_cores) == (2, [[0, 1]])


def test_strict_workers_stay_on_a_core_each_without_pinning_too() -> None:
    placement = placed([[0], [1]], pin=False, strict_cpu=True)
    assert (placement.decode_cores, placement.worker_cores) == ([0, 1], [[0]])
    placement = placed([[0, 1], [2, 3]], n_threads=9, pin=False, strict_cpu=True)
    assert placement.worker_cores == [[0], [2], [1]]


def test_ggml_places_threads_on_memory_nodes_itself() -> None:
    assert not placed([[0], [1]], options=ModelOptions(numa="distribute")).is_pinned


def test_a_core_outside_the_mask_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^decode_core: .*core 9$"):
        placed([[0], [1]], decode_core=9)


@pytest.mark.parametrize(
    ("field", "value"), [("n_slots", 0), ("n_threads", 0), ("n_batch", 0), ("poll", 101)]
)
def test_bad_configurations_are_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: "):
        EngineConfig(model_path=MODEL, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cores", "fields", "leaves_a_core"),
    [
        ([[0], [1]], {}, False),
        ([[0], [1]], {"n_threads": 1}, True),
        ([[0, 1]], {}, True),  # a hyper-thread is left
        ([[0]], {}, False),
        (
            [[0], [1]],
            {"n_threads": 1, "pin": False},
            False,
        ),  # threads are where the kernel puts them
    ],
)
def test_whether_a_core_is_left_for_the_front_end(
    cores: list[list[int]], fields: dict[str, object], leaves_a_core: bool
) -> None:
    assert placed(cores, **fields).leaves_a_core == leaves_a_core


def test_short_steps_are_the_decode_threads_where_workers_have_the_front_ends_cores() -> None:
    two = machine(2, SMT[0])
    assert placed(two).short_steps_alone
    assert placed(two, pin=False).short_steps_alone
    assert not placed(two, n_threads=2).short_steps_alone
    assert not placed(two, n_threads_batch=2).short_steps_alone
    assert not placed(machine(1, SMT[0])).short_steps_alone
    assert not placed(machine(1, SMT[1])).short_steps_alone
    for n in (4, 8):
        assert placed(machine(n, SMT[0])).short_steps_alone
        # The front end has the other hyper-threads to itself.
        assert not placed(machine(n, SMT[1])).short_steps_alone
        assert not placed(machine(n, SMT[0]), n_threads=n - 1).short_steps_alone
