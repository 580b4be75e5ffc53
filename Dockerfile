# docker build -t unpaced .                                           any x86-64 processor: its code is chosen at the start
# docker build -t unpaced:cuda --build-arg PROFILE=cuda-portable .    any NVIDIA card since Turing
# docker run --rm -p 8080:8080 -v "$PWD/models:/models:ro" unpaced serve -m /models/any.gguf
# docs/docker.md has the rest: other profiles, one kind of card, a registry of packages of one's own, this base image.
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS builder
RUN apt-get update && apt-get install -y --no-install-recommends ccache g++ && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore \
    CCACHE_DIR=/ccache CCACHE_COMPILERCHECK=content
WORKDIR /build

# Two environments: /opt/build has the tools and is left behind, /opt/unpaced is copied into the image.
# The secret is a pip.conf for those who need one (a mirror, a proxy); it is mounted, never written.
COPY requirements-build.lock requirements.lock requirements-otel.lock ./
RUN python -m venv /opt/build && python -m venv --without-pip /opt/unpaced
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/build/bin/pip install --no-deps --require-hashes -r requirements-build.lock \
 && /opt/build/bin/pip --python /opt/unpaced/bin/python install --no-deps --require-hashes \
      -r requirements.lock -r requirements-otel.lock

# What a CUDA build loads, and what compiles it: NVIDIA's packages, by hash. Not their headers and static libraries.
ARG PROFILE=cpu-portable
COPY requirements-cuda.lock requirements-cuda-build.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    case ${PROFILE} in cuda*) \
      /opt/build/bin/pip install --no-deps --require-hashes -r requirements-cuda-build.lock \
   && /opt/build/bin/pip --python /opt/unpaced/bin/python install --no-deps --require-hashes -r requirements-cuda.lock \
   && cd /opt/unpaced/lib/python3.*/site-packages/nvidia/cu13 && rm -r include lib/*.a lib/libnvblas.* ;; \
    esac

# llama.cpp: minutes. In front of our own sources, so that only a change of pin or profile repeats it.
ARG CUDA_ARCHITECTURES=
COPY engine_ext/build_llama.py engine_ext/
COPY engine_ext/llama_build engine_ext/llama_build
COPY engine_ext/profiles engine_ext/profiles
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,id=unpaced-ccache,target=/ccache \
    /opt/build/bin/python engine_ext/build_llama.py --profile ${PROFILE} --cuda-archs "${CUDA_ARCHITECTURES}" --install

COPY . .
RUN --mount=type=cache,id=unpaced-ccache,target=/ccache \
    /opt/build/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir dist \
      --config-settings=cmake.args=-C/build/.build/extension.cmake . \
 && /opt/build/bin/pip --python /opt/unpaced/bin/python install --no-deps --no-index .build/wheels/*/*.whl dist/*.whl

FROM ${BASE}
COPY --from=builder /opt/unpaced /opt/unpaced
# Where models are downloaded to, and what CUDA's driver compiles: a volume, or a folder of whatever user.
RUN mkdir --mode=1777 /cache
ENV PATH=/opt/unpaced/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    UNPACED_HOST=0.0.0.0 UNPACED_SUPERVISE=1 XDG_CACHE_HOME=/cache CUDA_CACHE_PATH=/cache/cuda \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# By number, so that Kubernetes can check runAsNonRoot. Nothing else is written: a read-only root works.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080
STOPSIGNAL SIGTERM
# While a model loads the server is starting, not ill.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10m \
  CMD ["unpaced", "health", "--timeout", "2"]
ENTRYPOINT ["unpaced"]
CMD ["serve"]
# For an image that is given away; docs/docker.md has the values. At the end: they invalidate no layer.
ARG VERSION=unreleased
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Unpaced" \
      org.opencontainers.image.description="HTTP inference server for GGUF models" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
