"""Where the model's layers and the token loop live."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field

from server.settings.option import Option


def _layers(value: object) -> object:
    # llama-server's words for "as many as there are".
    return -1 if isinstance(value, str) and value.lower() in {"all", "auto"} else value


class DeviceSettings(BaseModel):
    """Where the model's layers and the token loop live."""

    group: ClassVar[str] = "GPU (builds with a CUDA profile)"

    gpu_layers: Annotated[
        int,
        BeforeValidator(_layers),
        Field(ge=-1),
        Option(
            ("-ngl", "--gpu-layers", "--n-gpu-layers"),
            "layers on the GPU; all or auto: every one; 0: none, and a CUDA build needs no GPU",
            env="N_GPU_LAYERS",
            metavar="N",
        ),
    ] = -1
    decode_loop: Annotated[
        Literal["auto", "host", "ahead", "device"],
        Option(
            ("--decode-loop",),
            "who runs the token loop: device (the GPU), ahead (the GPU samples, the host "
            "launches), host, or auto: the best that is exact",
            metavar="LOOP",
        ),
    ] = "auto"
    require_device: Annotated[
        bool,
        Option(
            ("--require-device",),
            "refuse to start where the GPU cannot run the token loop",
            off_flags=("--no-require-device",),
        ),
    ] = False
