"""Ray Serve: `serve run unpaced.cluster.ray_serve:application flags="-m model.gguf" replicas=2`.

The application is the one of `unpaced serve`, once a replica. Ray has the HTTP port, spreads the
requests, bounds their queue, and replaces replicas that are ill. Needs the extra `ray`.
"""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingConfig, BackpressureConfig, RequestRouterConfig

from unpaced.cluster.replica_app import HEALTH_CHECK_S, ReplicaApp, read_flags

_SESSION_ROUTER: Final = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"
_SPARE_S: Final = 10.0
_HEALTH_TIMEOUT_S: Final = 10.0


class Options(BaseModel):
    """What `serve run` and a Serve configuration's `args` may say."""

    model_config = ConfigDict(extra="forbid")

    flags: str = ""
    """Flags of `unpaced serve`; not those of HTTP's port, which is Ray's."""
    replicas: int = Field(1, ge=1)
    """How many there are; at least, with `max_replicas`."""
    max_replicas: int = Field(0, ge=0)
    """Up to how many are started while requests wait; 0: `replicas`."""
    gpus: float = Field(0.0, ge=0)
    """Cards of a replica. Ray shows it these alone."""
    cpus: int = Field(1, ge=1)
    """Cores of a replica, and its threads unless `flags` say otherwise."""
    queue: int = Field(256, ge=0)
    """Requests that may wait for a replica; 503 beyond."""
    sessions: bool = False
    """Whether requests with the same session header go to the same replica."""


class Replica:
    """What Ray asks of a replica beside requests."""

    app: ReplicaApp

    async def check_health(self) -> None:
        """Raises: RuntimeError where the engine is lost; Ray then starts another replica."""
        why = self.app.why_ill()
        if why is not None:
            raise RuntimeError(why)


def application(options: Options) -> Any:
    """The application for `serve run` and for `import_path` in a Serve configuration."""
    settings = read_flags(options.flags, options.cpus)  # a wrong flag is told here, not by replicas
    flags, n_threads = options.flags, options.cpus

    def build() -> ReplicaApp:
        return ReplicaApp(read_flags(flags, n_threads))

    scaling: dict[str, Any] = {"num_replicas": options.replicas}
    if options.max_replicas > options.replicas:
        scaling = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=options.replicas,
                max_replicas=options.max_replicas,
                target_ongoing_requests=settings.n_slots,
            )
        }
    if options.sessions:
        scaling["request_router_config"] = RequestRouterConfig(request_router_class=_SESSION_ROUTER)
    return serve.deployment(
        serve.ingress(build)(Replica),
        name="unpaced",
        ray_actor_options={"num_cpus": options.cpus, "num_gpus": options.gpus},
        # Who waits, waits in front of the replicas: the first free slot of any is theirs.
        max_ongoing_requests=settings.n_slots,
        max_queued_requests=options.queue,
        backpressure_config=BackpressureConfig(status_code=503, retry_after_s=1),
        health_check_period_s=HEALTH_CHECK_S,
        health_check_timeout_s=_HEALTH_TIMEOUT_S,
        graceful_shutdown_timeout_s=settings.drain_timeout + settings.stop_timeout + _SPARE_S,
        **scaling,
    ).bind()
