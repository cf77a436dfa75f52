# PostgreSQL, Redis, Prometheus and an S3 test server from Debian and PyPI packages: stands in for the official images
# where no image can be pulled. Not for production.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends postgresql-15 redis-server prometheus \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/s3 && /opt/s3/bin/pip install -q "moto[server,s3]==5.2.1"
ENV PATH=/usr/lib/postgresql/15/bin:$PATH
COPY entrypoint.sh s3_server.py /usr/local/bin/
RUN mkdir -p /var/lib/postgresql/data /data/tabwise /prometheus \
 && chown postgres /var/lib/postgresql/data && chown redis /data && chown prometheus /prometheus
ENTRYPOINT ["/usr/local/bin/entrypoint.sh"]
CMD ["postgres"]
