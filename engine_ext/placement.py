"""Which core runs what: the decode thread has one, the front end and ggml's workers the rest."""

from dataclasses import dataclass

from engine_ext.config import EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Cores by number. Empty lists mean "not pinned"."""

    decode_cores: list[int]
    other_cores: list[int]
    n_threads: int
    n_threads_batch: int


def place(config: EngineConfig, cores: list[int], n_physical_cores: int) -> Placement:
    """Decide from the process's affinity mask `cores` (ascending).

    Raises: ValueError if `decode_core` is not one of them.
    """
    # Decoding leaves one core to the front end; prefill takes all, the front end being idle then.
    n_free_cores = n_physical_cores - 1 if config.pin else n_physical_cores
    n_threads = config.n_threads if config.n_threads > 0 else max(1, n_free_cores)
    n_threads_batch = config.n_threads_batch
    if n_threads_batch <= 0:
        n_threads_batch = n_threads if config.n_threads > 0 else n_physical_cores
    if config.decode_core is not None and config.decode_core not in cores:
        raise ValueError(f"decode_core: this process may not run on core {config.decode_core}")
    decode_cores: list[int] = []
    other_cores: list[int] = []
    if config.pin and len(cores) > 1:
        decode_core = config.decode_core if config.decode_core is not None else cores[-1]
        decode_cores = [decode_core]
        other_cores = [core for core in cores if core != decode_core]
    return Placement(
        decode_cores=decode_cores,
        other_cores=other_cores,
        n_threads=n_threads,
        n_threads_batch=n_threads_batch,
    )
