"""How to load and run a model."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine_ext.loading.model_options import ModelOptions

StepKernels = Literal["ggml", "own", "auto"]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to load and run a model. Counts are tokens unless they say otherwise.

    `n_ctx` is shared by all slots; 0: the model's training context. `kv_unified`: each slot may
    have all of it, as long as there are cells; else each has an equal part. `fit`: an `n_ctx` of 0
    is the training context for each slot, or as much of it as memory allows but at least
    `fit_n_ctx_min` a slot, and `n_gpu_layers` of -1 as many as the GPUs hold; `fit_margins` bytes
    stay free, a device (the last entry for those that have none), and of the host's
    `fit_host_bytes` where no device is used. `deterministic`: a sequence's tokens do not hang on
    what else the engine computes or has computed; prompts are computed in chunks of `n_ubatch`, or
    `prefill_budget`, tokens, and only whole chunks are reused. `context_shift`: a full
    slot drops the older half of its tokens instead of ending its request. `slot_similarity`: a slot
    that holds more than this fraction of a prompt is preferred to the one unused for longest.
    `cache_bytes_max`: host memory for the states of slots that were taken over; -1: no limit, 0:
    none is kept. `cache_idle_slots`: idle slots go there when another one gets to work.
    `n_batch` is kept for llama-server's sake: a step never computes more than `n_ubatch` tokens, so
    that cancel is seen.
    `prefill_budget`: prompt tokens that a step computes beside slots that decode, at most; 0: as
    many as without them; -1: 128 where the CPU alone computes, without `max_itl_ms` or
    `deterministic`; else as 0.
    `max_itl_ms`: what such a step may take, as far as the steps' own times tell; 0: no target.
    `n_threads` -1: one a physical core this process may use. `n_threads_batch` -1: as `n_threads`.
    Of either there are no more than cores (`placement.place`).
    `n_gpu_layers` -1 or -2: all where the build is for a GPU; 0: none, and a GPU build runs without
    one.
    `decode_loop`: who runs the token loop. "device": the GPU; "ahead": the GPU samples, the host
    launches; "host": the CPU samples; "auto": the best that is exact. One that was asked for and
    cannot be had is an error; so is less than "device" with `require_device`.
    `kernels`: whose kernels compute a step of the GPU's loop. "ggml": all are ggml's; "own": ours
    wherever they leave ggml's bits; "auto": of those the ones that are not slower here.
    `kernel_choices`: a folder, made where it is missing, that keeps what "auto" has measured; it
    need not be writable. None: every start measures.
    `n_lanes`: requests that the GPU's loop decodes together, 32 at most; more at once are the
    host's.
    `wake_interval_us`: tokens that come faster than this reach the front end together, in one
    wake-up; a request's start, first token and end never wait. 0: every step wakes it.
    `stall_timeout_s`: a GPU that gives no sign of life for longer in the midst of a step is lost,
    and the engine fails; 0: never. `stop_timeout_s`: `Engine.stop` gives the decode thread up where
    it takes longer to come to an end.
    `n_tokenizer_threads`: for long texts; the others have one of their own. `n_work_waiting_max`:
    texts, and grammars, of one client that may wait for a thread. `grammar_limit_s`: what compiling
    a grammar may take; `grammar_wait_s`: how long it may wait before.
    `poll`: how long ggml's workers spin for work before they sleep, 0 to 100.
    `pin`: the decode thread and each of ggml's workers stay on a core of their own, the front end
    off the decode thread's; nothing is pinned on a single core. `decode_core` None: the last one.
    `strict_cpu`: ggml's workers stay on a core each even so.
    """

    model_path: Path
    options: ModelOptions = field(default_factory=ModelOptions)
    n_ctx: int = 0
    fit: bool = False
    fit_margins: tuple[int, ...] = (1 << 30,)
    fit_n_ctx_min: int = 4096
    fit_host_bytes: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    prefill_budget: int = -1
    max_itl_ms: float = 0.0
    n_slots: int = 1
    kv_unified: bool = False
    deterministic: bool = False
    context_shift: bool = False
    slot_similarity: float = 0.1
    cache_bytes_max: int = 0
    cache_idle_slots: bool = True
    n_waiting_max: int = 64
    n_threads: int = -1
    n_threads_batch: int = -1
    n_gpu_layers: int = -1
    decode_loop: Literal["auto", "host", "ahead", "device"] = "auto"
    kernels: StepKernels = "auto"
    kernel_choices: Path | None = None
    n_lanes: int = 1
    require_device: bool = False
    flash_attn: Literal["auto", "on", "off"] = "auto"
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    check_tensors: bool = False
    warmup: bool = True
    poll: int = 1
    wake_interval_us: int = 1500
    stall_timeout_s: float = 60.0
    stop_timeout_s: float = 5.0
    n_tokenizer_threads: int = 2
    n_work_waiting_max: int = 256
    grammar_limit_s: float = 10.0
    grammar_wait_s: float = 10.0
    pin: bool = True
    decode_core: int | None = None
    strict_cpu: bool = False

    def __post_init__(self) -> None:
        for name, low in (
            ("n_ctx", 0),
            ("fit_n_ctx_min", 0),
            ("n_batch", 1),
            ("n_ubatch", 1),
            ("prefill_budget", -1),
            ("max_itl_ms", 0),
            ("n_slots", 1),
            ("n_waiting_max", 0),
            ("cache_bytes_max", -1),
            ("slot_similarity", 0),
            ("poll", 0),
            ("wake_interval_us", 0),
            ("stall_timeout_s", 0),
            ("stop_timeout_s", 0),
            ("n_tokenizer_threads", 1),
            ("n_work_waiting_max", 0),
        ):
            if getattr(self, name) < low:
                raise ValueError(f"{name}: must be >= {low}, but got {getattr(self, name)}")
        for name in ("n_threads", "n_threads_batch"):
            if not (getattr(self, name) == -1 or getattr(self, name) >= 1):
                raise ValueError(f"{name}: must be -1 or >= 1, but got {getattr(self, name)}")
        if self.poll > 100:
            raise ValueError(f"poll: must be <= 100, but got {self.poll}")
        if not 1 <= self.n_lanes <= 32:
            raise ValueError(f"n_lanes: must be 1 to 32, but got {self.n_lanes}")
        if self.n_slots > 256:
            raise ValueError(f"n_slots: must be <= 256, but got {self.n_slots}")
        if self.n_slots >= self.n_batch:
            raise ValueError(f"n_batch: must be > n_slots ({self.n_slots}), got {self.n_batch}")
        if self.deterministic:
            self._check_deterministic()

    def _check_deterministic(self) -> None:
        for name, reason in (
            ("kv_unified", "where a request's cells lie would hang on others"),
            ("context_shift", "it moves the cells of all requests"),
            ("max_itl_ms", "the size of a prompt's chunks would hang on the time that others take"),
        ):
            if getattr(self, name):
                raise ValueError(f"{name}: cannot be with deterministic: {reason}")
