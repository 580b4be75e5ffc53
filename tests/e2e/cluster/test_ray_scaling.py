"""Ray Serve starts a second replica while requests wait for the first one, and none is lost."""

import time

import pytest

from tests.e2e.cluster.ray_cluster import ray_serve, why_no_ray
from tests.e2e.cluster.test_ray_serve import Stream
from tests.support.patience import patience

N_STREAMS = 6

pytestmark = [pytest.mark.packaging, pytest.mark.skipif(bool(why_no_ray()), reason=why_no_ray())]


def test_a_second_replica_comes_while_requests_wait() -> None:
    with ray_serve(replicas=1, max_replicas=2, flags="-c 4096 -np 2") as cluster:
        assert len(cluster.replicas()) == 1
        begin_s = time.monotonic()
        streams = [Stream(cluster, "") for _ in range(N_STREAMS)]
        ended: list[Stream] = []
        while len(cluster.replicas()) < 2:  # Ray waits for half a minute before it believes it
            assert time.monotonic() - begin_s < patience(90), "there is still one replica"
            ended += [stream for stream in streams if not stream.is_alive()]
            streams = [stream for stream in streams if stream.is_alive()]
            streams += [Stream(cluster, "") for _ in range(N_STREAMS - len(streams))]
            time.sleep(0.05)
        print(f"a second one after {time.monotonic() - begin_s:.0f} s")
        for stream in streams:
            stream.join(patience(60))
        assert ended and all(stream.is_whole for stream in ended + streams)
