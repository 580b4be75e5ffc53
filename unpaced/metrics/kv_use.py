"""How much of the KV cache is in use."""

from typing import NamedTuple, Self

from engine_ext import EngineState
from unpaced.completion.slot_table import SlotTable
from unpaced.request.model_host import ModelHost


class KvUse(NamedTuple):
    """Cells, each a token's K and V. All are 0 while no model is loaded."""

    n_cells: int
    n_running: int
    """Of requests that run, each counted once, however many share it."""
    n_idle: int
    """What idle slots keep for later prompts; whoever needs the cells gets them."""

    @classmethod
    def of(cls, host: ModelHost, slots: SlotTable) -> Self:
        """As it was after the last step. Any thread."""
        engine, settings = host.engine, host.settings
        if engine.state is not EngineState.READY:
            return cls(0, 0, 0)
        n_pools = 1 if settings.shares_cells else settings.n_slots
        n_running = n_idle = 0
        for cells, is_running in zip(engine.slots.n_cells(), slots.running(), strict=False):
            n_running += cells if is_running else 0
            n_idle += 0 if is_running else cells
        n_running -= min(n_running, engine.stats().n_cells_repeated)
        return cls(engine.model.n_ctx * n_pools, n_running, n_idle)

    @property
    def ratio(self) -> float:
        """Part of the cells that requests need which run now; 0 to 1."""
        return min(1.0, self.n_running / self.n_cells) if self.n_cells else 0.0
