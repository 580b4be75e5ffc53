"""`unpaced serve --list-devices`: what -dev can name."""

from engine_ext import list_devices

_MIB = 1024 * 1024


def show_devices() -> int:
    """One line a device, in llama-server's form."""
    print("Available devices:")
    devices = list_devices()
    for device in devices:
        total, free = device.total_bytes // _MIB, device.free_bytes // _MIB
        print(f"  {device.name}: {device.description} ({total} MiB, {free} MiB free)")
    if not devices:
        print("  (none)")
    return 0
