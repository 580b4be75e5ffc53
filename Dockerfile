# docker build -t unpaced .                         any x86-64 processor: its code is chosen at the start
# docker build -t unpaced --build-arg PROFILE=cpu . exactly the processor of the machine that builds
# docker run --rm -p 8080:8080 -v "$PWD/models:/models:ro" unpaced serve -m /models/any.gguf
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS builder
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# Two environments: /opt/build has the tools and is left behind, /opt/unpaced is copied into the image.
COPY requirements-build.lock requirements.lock ./
RUN python -m venv /opt/build && python -m venv --without-pip /opt/unpaced
RUN /opt/build/bin/pip install --no-deps --require-hashes -r requirements-build.lock
RUN /opt/build/bin/pip --python /opt/unpaced/bin/python install --no-deps --require-hashes -r requirements.lock

# llama.cpp: minutes. In front of our own sources, so that only a change of pin or profile repeats it.
ARG PROFILE=cpu-portable
COPY engine_ext/build_llama.py engine_ext/
COPY engine_ext/llama_build engine_ext/llama_build
COPY engine_ext/profiles engine_ext/profiles
RUN /opt/build/bin/python engine_ext/build_llama.py --profile ${PROFILE} --install

COPY . .
RUN /opt/build/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir dist .
RUN /opt/build/bin/pip --python /opt/unpaced/bin/python install --no-deps --no-index \
      .build/wheels/*/*.whl dist/*.whl

FROM ${BASE}
COPY --from=builder /opt/unpaced /opt/unpaced
ENV PATH=/opt/unpaced/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    UNPACED_HOST=0.0.0.0
# By number, so that Kubernetes can check runAsNonRoot. Nothing is written: a read-only root works.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080
STOPSIGNAL SIGTERM
# While a model loads the server is starting, not ill.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10m \
  CMD ["unpaced", "health", "--timeout", "2"]
ENTRYPOINT ["unpaced"]
CMD ["serve"]
