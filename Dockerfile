# Two images of one code: `serve` answers over HTTP without the training code's dependencies; `train` runs all other
# commands, and has the clients of the stores for `turret history`. Both work in /app and keep their files in /app/var,
# each in a volume of its own; they share /app/var/bundles, and therefore run as the same user.
# Every package comes from a lock with hashes (deploy/locks, written by `make lock`).

FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# ONNX Runtime sends no telemetry.
ENV ORT_DISABLE_TELEMETRY=1
RUN useradd --uid 1000 --create-home turret \
    && mkdir -p /app/var/bundles /app/work \
    && chown -R turret: /app/var /app/work
WORKDIR /app

# The code as a wheel.
FROM base AS built
WORKDIR /src
COPY deploy/locks/build.txt deploy/locks/
RUN pip install --require-hashes --requirement deploy/locks/build.txt
COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

# Dependencies come before the code, so that a change of the code reuses their layer.
FROM base AS serve
COPY deploy/locks/serve.txt /tmp/locks/
RUN pip install --no-deps --require-hashes --requirement /tmp/locks/serve.txt
COPY --from=built /wheel /tmp/wheel
RUN pip install --no-deps /tmp/wheel/*.whl && pip check
# By number, so that the container runtime can verify that this isn't root.
USER 1000:1000
ENV TURRET_HOST=0.0.0.0
# Public calls, and admin calls: docker-compose.yml publishes only the first.
EXPOSE 8000 8001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8000, timeout=4); c.request('GET', '/readyz'); exit(c.getresponse().status != 200)"]
ENTRYPOINT ["turret"]
CMD ["serve", "--wait"]
# Last, as every commit has another revision.
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="turret serve" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$REVISION"

FROM base AS train
# PyPI's torch includes CUDA; https://download.pytorch.org/whl/cpu has a much smaller build without it, which is taken
# where pip finds it.
ARG PIP_EXTRA_INDEX_URL
COPY deploy/locks/torch-cpu.txt deploy/locks/torch-cuda.txt /tmp/locks/
RUN pip install --no-deps --require-hashes --requirement /tmp/locks/torch-cpu.txt \
    || pip install --no-deps --require-hashes --requirement /tmp/locks/torch-cuda.txt
COPY deploy/locks/train.txt /tmp/locks/
RUN pip install --no-deps --require-hashes --requirement /tmp/locks/train.txt
COPY --from=built /wheel /tmp/wheel
RUN pip install --no-deps /tmp/wheel/*.whl && pip check
USER 1000:1000
# Samplers are compiled on first use; the cache in the volume spares the next container the compilation.
ENV NUMBA_CACHE_DIR=/app/var/compiled
ENTRYPOINT ["turret"]
CMD ["--help"]
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="turret train" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$REVISION"
