# The feedback front door (8082) and the ledger; also runs the migrations.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

# Behind a mirror: docker compose build --build-arg PIP_INDEX_URL=… (and PIP_EXTRA_INDEX_URL for a CPU build of torch).
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PATH=/opt/venv/bin:$PATH

RUN python3 -m venv /opt/venv
COPY requirements/ingest.txt /tmp/requirements.txt
RUN pip install -r /tmp/requirements.txt
RUN useradd --uid 10001 --create-home tabwise \
 && mkdir -p /data/checkpoints /data/serving /data/hub /data/keys \
 && chown -R tabwise:tabwise /data
WORKDIR /app
COPY shared shared
COPY migrations migrations
COPY services/__init__.py services/__init__.py
COPY services/ingest services/ingest
USER tabwise
CMD ["python", "-m", "services.ingest"]
