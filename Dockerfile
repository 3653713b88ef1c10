# A server of a cluster, and the command line to apply one: `docker build -t omnigraph .`
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".[mcp,s3,server]"

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels "omnigraph[mcp,s3,server]" && rm -r /wheels
COPY deploy/entrypoint.sh /usr/local/bin/omnigraph-entrypoint
RUN useradd --uid 10001 --create-home omnigraph && install -d -o omnigraph /cluster
USER omnigraph
ENV OMNIGRAPH_BIND=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=3)"]
ENTRYPOINT ["omnigraph-entrypoint"]
