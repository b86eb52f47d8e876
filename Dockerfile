# Two images of one code: `serve` answers over HTTP without the training code's dependencies; `train` runs all other
# commands, and has the clients of the stores for `turret history`. Both work in /app and keep their files in /app/var,
# each in a volume of its own; they share /app/var/bundles, and therefore run as the same user.

FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# ONNX Runtime sends no telemetry.
ENV ORT_DISABLE_TELEMETRY=1
RUN useradd --uid 1000 --create-home turret \
    && mkdir -p /app/var/bundles /app/work \
    && chown -R turret: /app/var /app/work
WORKDIR /app

# The code as a wheel, and the requirements of each image, read from pyproject.toml.
FROM base AS built
WORKDIR /src
RUN pip install "setuptools>=77" wheel
COPY pyproject.toml constraints.txt ./
COPY deploy/requirements.py deploy/
RUN python deploy/requirements.py serve > serve.txt && python deploy/requirements.py train history > train.txt
COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

# Dependencies come before the code, so that a change of the code reuses their layer.
FROM base AS serve
COPY --from=built /src/constraints.txt /src/serve.txt /tmp/requirements/
RUN pip install --constraint /tmp/requirements/constraints.txt --requirement /tmp/requirements/serve.txt
COPY --from=built /wheel /tmp/wheel
RUN pip install --no-deps /tmp/wheel/*.whl
# By number, so that the container runtime can verify that this isn't root.
USER 1000:1000
ENV TURRET_HOST=0.0.0.0
# Public calls, and admin calls: docker-compose.yml publishes only the first.
EXPOSE 8000 8001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8000, timeout=4); c.request('GET', '/readyz'); exit(c.getresponse().status != 200)"]
ENTRYPOINT ["turret"]
CMD ["serve", "--wait"]

FROM base AS train
# PyPI's torch includes CUDA; https://download.pytorch.org/whl/cpu has a much smaller build without it.
ARG PIP_EXTRA_INDEX_URL
COPY --from=built /src/constraints.txt /src/train.txt /tmp/requirements/
RUN pip install --constraint /tmp/requirements/constraints.txt --requirement /tmp/requirements/train.txt
COPY --from=built /wheel /tmp/wheel
RUN pip install --no-deps /tmp/wheel/*.whl
USER 1000:1000
# Samplers are compiled on first use; the cache in the volume spares the next container the compilation.
ENV NUMBA_CACHE_DIR=/app/var/compiled
ENTRYPOINT ["turret"]
CMD ["--help"]
