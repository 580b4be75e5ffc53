"""Which core runs what."""

from pathlib import Path

import pytest

from engine_ext.config import EngineConfig
from engine_ext.placement import place

MODEL = Path("model.gguf")


def test_the_decode_thread_gets_the_last_core_and_the_front_end_the_rest() -> None:
    placement = place(EngineConfig(model_path=MODEL), [2, 3, 6, 7], 4)
    assert placement.decode_cores == [7]
    assert placement.other_cores == [2, 3, 6]
    assert (placement.n_threads, placement.n_threads_batch) == (3, 4)


def test_a_chosen_core_is_taken_out_of_the_others() -> None:
    placement = place(EngineConfig(model_path=MODEL, decode_core=2), [2, 3], 2)
    assert (placement.decode_cores, placement.other_cores) == ([2], [3])


def test_a_single_core_is_not_pinned() -> None:
    placement = place(EngineConfig(model_path=MODEL), [5], 1)
    assert (placement.decode_cores, placement.other_cores) == ([], [])
    assert placement.n_threads == 1


def test_without_pinning_every_core_decodes() -> None:
    placement = place(EngineConfig(model_path=MODEL, pin=False), [0, 1], 2)
    assert (placement.decode_cores, placement.n_threads) == ([], 2)


def test_given_threads_are_kept() -> None:
    placement = place(EngineConfig(model_path=MODEL, n_threads=8), [0, 1], 2)
    assert (placement.n_threads, placement.n_threads_batch) == (8, 8)


def test_a_core_outside_the_mask_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^decode_core: .*core 9$"):
        place(EngineConfig(model_path=MODEL, decode_core=9), [0, 1], 2)


@pytest.mark.parametrize(
    ("field", "value"), [("n_slots", 0), ("n_threads", 0), ("n_batch", 0), ("poll", 101)]
)
def test_bad_configurations_are_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: "):
        EngineConfig(model_path=MODEL, **{field: value})  # type: ignore[arg-type]
