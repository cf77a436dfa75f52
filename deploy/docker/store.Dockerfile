# S3-compatible store over a folder (versitygw); a bucket is a folder below /data.
ARG BASE_IMAGE=versity/versitygw:v1.7.0
FROM ${BASE_IMAGE}

RUN mkdir -p /data/tabwise && chown -R 10001:10001 /data
USER 10001:10001
CMD ["--port", ":9000", "posix", "/data"]
