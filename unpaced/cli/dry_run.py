"""`unpaced serve --dry-run`: what would be loaded where, and how much memory it takes."""

from collections.abc import Callable

from engine_ext import EngineError, MemoryPlan, MemoryUse, plan_memory, read_build_info
from unpaced.settings import Settings

_MIB = 1024 * 1024


def dry_run(settings: Settings) -> int:
    """Print the plan; nothing is loaded. Raises: EngineError."""
    try:
        plan = plan_memory(settings.engine_config())
    except ValueError as error:
        raise EngineError(settings.name_origin(str(error))) from None
    for line in _lines(settings, plan):
        print(line)
    return 0


def _lines(settings: Settings, plan: MemoryPlan) -> list[str]:
    build = read_build_info()
    train = f", trained with {plan.n_ctx_train}" if plan.n_ctx != plan.n_ctx_train else ""
    slots = f"{settings.n_slots} x {plan.n_ctx_slot}" if settings.n_slots > 1 else "1 slot"
    columns: list[tuple[str, Callable[[MemoryUse], int]]] = [
        ("weights", lambda use: use.model_bytes),
        ("KV cache", lambda use: use.context_bytes),
        ("computing", lambda use: use.compute_bytes),
        ("token loop", lambda use: use.loop_bytes),
        ("together (MiB)", lambda use: use.total_bytes),
    ]
    if not any(use.loop_bytes for use in plan.uses):
        del columns[3]
    rows = [("memory", *(title for title, _ in columns))]
    rows += [
        (
            f"{use.buffer_type}{f' ({use.device})' if use.device else ''}",
            *(f"{bytes_of(use) / _MIB:.1f}" for _, bytes_of in columns),
        )
        for use in plan.uses
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return [
        f"model    {settings.model}",
        f"         {plan.description}, {plan.n_params:,} parameters, {plan.n_layer} layers",
        f"context  {plan.n_ctx} tokens{train}; {slots}; "
        f"K {settings.cache_type_k}, V {settings.cache_type_v}",
        *([f"fit      {plan.fit}"] if plan.fit else []),
        *([f"cards    {plan.choice}"] if plan.choice else []),
        f"build    llama.cpp {build.llama_commit[:9]}, profile {build.profile}",
        "",
        *table,
        "",
        "Nothing was loaded. What comes on top: the process itself, and in GPU builds the driver's",
        "context. Weights mapped from the file count once for all that map them.",
    ]
