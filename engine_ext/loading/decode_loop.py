"""Where an engine's token loop runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

COMPILING_PATIENCE: Final = 10.0
"""See DecodeLoop.patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU and what was chosen for it; compute capabilities are as NVIDIA writes them: 9.0."""

    index: int
    """CUDA's number, among the cards that this process may see."""
    name: str
    compute_capability: str
    code_from: str
    """Of the PTX that the loop's code was compiled from."""
    code_for: str
    """Whose instructions that code has. Not `code_from`: the driver compiled it at the start."""
    built_for: str
    """The architectures that this build has code for, in CMake's words, with commas."""
    draw_team: str
    """Who draws from a whole row of logits: a cluster of blocks, a grid of them, or one block."""
    n_draw_blocks: int
    draw_reason: str
    """Why one block draws alone; empty: it does not."""
    programmatic_launches: bool
    """llama.cpp's kernels begin before the ones before them have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLoop:
    """What was chosen at start-up. Requests that a GPU loop cannot sample go through the host."""

    loop: str
    """host, ahead or device: see EngineConfig.decode_loop."""
    reason: str
    """Why not a better one; empty: it is the best."""
    device: str
    """Name of the GPU that runs the loop; empty: none."""
    choice: str = ""
    """One sentence about the choice of one card or of several; empty: there was none."""
    card: Card | None = None
    """The GPU that runs the loop."""
    compiled_from: str = ""
    """Compute capability of the PTX that the driver compiles for the card, each kernel at its first
    use; empty: the build has the card's instructions, or uses no card."""
    cards: Sequence[str] = ()
    """Devices whose memory has the model's weights and KV. A CUDA build says so."""
    memory_bytes: Mapping[str, Mapping[str, int]]
    """What llama.cpp holds, by kind of memory (CUDA0, CUDA_Host, CPU): weights, kv, compute."""
    elsewhere: Sequence[str]
    """Weights and KV buffers that are not on the GPU, the first 16. A CUDA build says so."""
    n_elsewhere: int
    n_graph_nodes: Mapping[str, int]
    """Nodes of the one-token decode graph, by backend. A CUDA build says so."""
    n_graph_splits: int
    phases: Sequence[Mapping[str, str | int]]
    """The GPU's step, phases that are alike together: phase, kernels (own or ggml), why, n."""
    phase_trials: Sequence[Mapping[str, str | int | float | bool]] = ()
    """The start-up test of each shape of the phases that may be ours: phase, n_rows (requests that
    make the step together), n, ms (what the test took), remembered (kernels is auto, and an earlier
    start has measured it), measured (now, as far as there was time), and then ggml_us and own_us of
    one phase. By n_rows; those that read most weights come first."""

    n_lanes: int = 0
    """Requests that the GPU's loop decodes together, at most; 0: the loop is the host's."""
    lanes_why: str = ""
    """Why no more; empty: as many as were asked for, or as there are slots."""
    lane_steps: Sequence[Mapping[str, str | int | float]] = ()
    """Steps of several requests together, by their number (n_rows), and how many rows the graph has
    that makes them, with padding (n_graph_rows): kernels (own: as far as there are ours, or ggml),
    why, and with kernels auto own_us and ggml_us, what a step takes without the draw, of those that
    the start-up test measured; 0: of the others."""
    prompt_lengths: Sequence[Mapping[str, str | int | float]] = ()
    """Short prompts, by their number of tokens (n_tokens; above eight in eights, each for all up to
    there): what computes them (by: graph or llama_decode), why, and what the start-up test found
    of those it computed: own_ms, decode_ms, capture_ms. Empty: llama_decode computes all."""
    prompts_why: str = ""
    """Why llama_decode computes all prompts; empty: see prompt_lengths."""

    @property
    def patience(self) -> float:
        """How many times longer than usual a step may take before the engine counts as stalled.

        The driver takes up to a minute or two for a file of kernels, in the midst of the first
        prompt that needs one.
        """
        return COMPILING_PATIENCE if self.compiled_from else 1.0

    @classmethod
    def of_report(cls, report: Mapping[str, Any], loop: str) -> Self:
        """What the native engine reports, with the loop's name."""
        card = report["card"]
        return cls(**{**report, "loop": loop, "card": None if card is None else Card(**card)})
