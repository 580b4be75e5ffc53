"""`unpaced serve --list-devices`: what -dev can name."""

from collections.abc import Sequence

from engine_ext import list_devices, use_rpc_workers

_MIB = 1024 * 1024


def show_devices(rpc_workers: Sequence[str]) -> int:
    """One line a device, in llama-server's form. Raises: EngineError for a worker."""
    use_rpc_workers(rpc_workers)
    print("Available devices:")
    devices = list_devices()
    for device in devices:
        total, free = device.total_bytes // _MIB, device.free_bytes // _MIB
        print(f"  {device.name}: {device.description} ({total} MiB, {free} MiB free)")
    if not devices:
        print("  (none)")
    return 0
