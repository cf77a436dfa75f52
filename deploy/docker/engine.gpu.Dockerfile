# vLLM on a GPU: the official image plus our starter.
ARG BASE_IMAGE=vllm/vllm-openai:v0.32.0
FROM ${BASE_IMAGE}

ARG PIP_INDEX_URL=
RUN pip install --no-cache-dir "pydantic-settings==2.16.3" "structlog==26.1.0"
RUN useradd --uid 10001 --create-home tabwise && mkdir -p /data/serving /data/hub && chown -R tabwise:tabwise /data
WORKDIR /app
COPY shared shared
COPY services/__init__.py services/__init__.py
COPY services/engine services/engine
USER tabwise
ENTRYPOINT []
CMD ["python3", "-m", "services.engine"]
