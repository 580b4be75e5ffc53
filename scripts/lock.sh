#!/bin/sh
# lock.sh: resolves pyproject.toml into the lock files, for Python 3.11 and newer, with hashes and without index URLs.
# llama-cpp-python is not among them: engine_ext/build_llama.py builds and installs it.
set -eu
compile() {
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
    --custom-compile-command "make lock" "$@"
}
compile --group build -o requirements-build.lock
compile --group cuda --no-emit-package cuda-toolkit -o requirements-cuda.lock
compile --group cuda-build --no-emit-package cuda-toolkit -c requirements-cuda.lock -o requirements-cuda-build.lock
compile --group dist -c requirements-build.lock -o requirements-dist.lock
compile pyproject.toml -o requirements.lock
# What the image has beside them: only what is in the extra.
sed -n '/^otel = \[/s/[^"]*"\([^"]*\)"[^"]*/\1\n/gp' pyproject.toml | compile - -c requirements.lock -o requirements-otel.lock
compile pyproject.toml --extra otel --extra test --extra lint --group build \
  -c requirements.lock -c requirements-otel.lock -c requirements-build.lock -o requirements-dev.lock
sed -n '/^deploy = \[/s/[^"]*"\([^"]*\)"[^"]*/\1\n/gp' pyproject.toml | compile - -c requirements-dev.lock -o requirements-deploy.lock
# The clients' environment does not hold the project: only what is in the extra.
sed -n '/^clients = \[/,/^\]/s/^  "\(.*\)",$/\1/p' pyproject.toml | compile - -o requirements-clients.lock
