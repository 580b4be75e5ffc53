"""Where an engine's token loop runs."""

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
    n_graph_nodes: int
    """Nodes of the one-token decode graph, all on the GPU; 0 with the host's loop."""
    n_graph_splits: int
