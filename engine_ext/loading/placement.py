"""Which core runs what: the decode thread, each of ggml's workers, the front end."""

from dataclasses import dataclass

from engine_ext.loading.config import EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Cores by number, and numbers of threads.

    `worker_cores` has a list for each of ggml's workers; all other threads are the front end's.
    Unless `is_pinned`, the decode thread and the front end are where the process was put.
    `n_threads_asked`: the most that was asked for, of which there may be fewer (`place`).
    `short_steps_alone`: the decode thread computes short steps without workers, which have the
    front end's cores (csrc/host/short_steps.h).
    """

    is_pinned: bool
    decode_cores: list[int]
    worker_cores: list[list[int]]
    front_end_cores: list[int]
    n_threads: int
    n_threads_batch: int
    n_threads_asked: int
    short_steps_alone: bool

    @property
    def has_fewer_threads(self) -> bool:
        """Whether threads that were asked for have no core."""
        return self.n_threads_asked > max(self.n_threads, self.n_threads_batch)

    @property
    def leaves_a_core(self) -> bool:
        """Whether the front end has a core that no thread has that waits by spinning."""
        taken = {*self.decode_cores}.union(*self.worker_cores)
        return not taken.issuperset(self.front_end_cores)


def place(config: EngineConfig, physical_cores: list[list[int]]) -> Placement:
    """Decide from the cores of the process's affinity mask, the hyper-threads of each together.

    There are never more threads than cores: ggml's threads wait for one another by spinning at each
    operation of a graph, and where two share a core each of these waits takes the kernel's turn, so
    that three threads on two cores need a second for a token of the smallest model.

    Raises: ValueError if `decode_core` is not one of them.
    """
    cores = sorted(core for group in physical_cores for core in group)
    if config.decode_core is not None and config.decode_core not in cores:
        raise ValueError(f"decode_core: this process may not run on core {config.decode_core}")
    # The front end takes microseconds of a token: a core of its own would be a core lost.
    asked = config.n_threads if config.n_threads > 0 else len(physical_cores)
    asked_batch = config.n_threads_batch if config.n_threads_batch > 0 else asked
    n_threads, n_threads_batch = min(asked, len(cores)), min(asked_batch, len(cores))
    n_workers = max(n_threads, n_threads_batch) - 1
    is_ours = config.options.numa is None  # else ggml puts threads on memory nodes
    is_pinned = is_ours and config.pin and len(cores) > 1
    decode_cores, front_end_cores = cores, cores
    if is_pinned:
        decode_cores = [config.decode_core if config.decode_core is not None else cores[-1]]
    worker_cores = [cores] * n_workers
    if is_pinned or (is_ours and config.strict_cpu):
        own = _one_each(physical_cores, decode_cores if is_pinned else [], n_workers)
        worker_cores = [[core] for core in own]
        if is_pinned:
            front_end_cores = _left_over(physical_cores, decode_cores, own)
    return Placement(
        is_pinned=is_pinned,
        decode_cores=decode_cores,
        worker_cores=worker_cores,
        front_end_cores=front_end_cores,
        n_threads=n_threads,
        n_threads_batch=n_threads_batch,
        n_threads_asked=max(asked, asked_batch),
        short_steps_alone=n_workers > 0
        and {*decode_cores}.union(*worker_cores).issuperset(front_end_cores)
        and config.n_threads <= 0
        and config.n_threads_batch <= 0,
    )


def _one_each(physical_cores: list[list[int]], taken: list[int], n: int) -> list[int]:
    # A hyper-thread of each physical core first; the decode thread's core comes last.
    groups = sorted(physical_cores, key=lambda group: any(core in taken for core in group))
    depth = max(len(group) for group in groups)
    in_turn = [group[i] for i in range(depth) for group in groups if i < len(group)]
    order = [core for core in in_turn if core not in taken]
    return order[:n]


def _left_over(physical_cores: list[list[int]], decode: list[int], workers: list[int]) -> list[int]:
    # What nobody has, best without the decode thread's other hyper-threads; else the workers'.
    cores = sorted(core for group in physical_cores for core in group if core not in decode)
    free = [core for core in cores if core not in workers]
    beside = next(group for group in physical_cores if decode[0] in group)
    return [core for core in free if core not in beside] or free or cores
