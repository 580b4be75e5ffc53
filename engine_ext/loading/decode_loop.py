"""Where an engine's token loop runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLoop:
    """What was chosen at start-up. Requests that a GPU loop cannot sample go through the host."""

    loop: str
    """host, ahead or device: see EngineConfig.decode_loop."""
    reason: str
    """Why not a better one; empty: it is the best."""
    device: str
    """Name of the GPU that runs the loop; empty: none."""
    memory_bytes: Mapping[str, Mapping[str, int]]
    """What llama.cpp holds, by kind of memory (CUDA0, CUDA_Host, CPU): weights, kv, compute."""
    elsewhere: Sequence[str]
    """Weights and KV buffers that are not on the GPU, the first 16. A CUDA build says so."""
    n_elsewhere: int
    n_graph_nodes: Mapping[str, int]
    """Nodes of the one-token decode graph, by backend. A CUDA build says so."""
    n_graph_splits: int
