# The jobs on Spark: everything of the services' image, PySpark, a Java runtime and the connectors' jars.
#
#   make image
#
# It runs a job by itself (`start spark frequency`), and is what Spark on Kubernetes starts drivers and
# executors from (`start driver`, `start executor`).
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_CONSTRAINT=/src/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE pipeline.yaml ./
COPY dovetail dovetail
COPY services services
COPY deploy deploy
# PySpark is published as a source archive; it holds Java's and Python's files, and compiles nothing.
# hadolint ignore=DL3013
RUN python -m venv --without-pip /opt/dovetail \
    && pip --python /opt/dovetail/bin/python install --no-compile --only-binary :all: \
        --no-binary dovetail,pyspark '.[spark]'
# The jars of deploy/local/spark.lock, each compared with its SHA-256 there.
# By the base's Python, for its pip, which fetches them.
RUN DOVETAIL_HOME=/tmp/home MVN='' PYTHONPATH=/opt/dovetail/lib/python3.11/site-packages \
    python -m deploy.image.jars /opt/dovetail/jars
ARG SOURCE_DATE_EPOCH=1735689600
RUN find /opt/dovetail/lib -name '*.py' -exec touch --no-dereference --date=@"${SOURCE_DATE_EPOCH}" {} + \
    && /opt/dovetail/bin/python -m compileall -q -j 0 -x 'pyspark/(examples|python/dependency)' \
        --invalidation-mode unchecked-hash /opt/dovetail/lib
ARG NUMBA_CPU_NAME=
# From elsewhere: what is imported, and so what kernels are kept for, is the installed package.
WORKDIR /
RUN echo "${NUMBA_CPU_NAME}" > /opt/dovetail/processor \
    && NUMBA_CACHE_DIR=/opt/dovetail/kernels /opt/dovetail/bin/python -m deploy.image.start warm /src/pipeline.yaml
# Pinned, like all that is installed here, by PIP_CONSTRAINT.
# hadolint ignore=DL3013
RUN pip install --target /tmp/sbom packaging \
    && PYTHONPATH=/tmp/sbom /opt/dovetail/bin/python -m deploy.sbom --extra spark --into /opt/dovetail/sbom

FROM ${PYTHON_IMAGE} AS spark
ARG VERSION=0.2.0
LABEL org.opencontainers.image.title="dovetail-spark" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Dovetail's jobs on Spark"
# Java 17 is the base's Debian release's; its security updates are wanted, so that it has no version here.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && python -m pip uninstall --yes --quiet pip setuptools wheel \
    && groupadd --system --gid 10001 dovetail \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/dovetail dovetail \
    && install --directory --owner=10001 --group=10001 /var/cache/dovetail /var/lib/dovetail \
    && install --directory /etc/dovetail
COPY --from=build /opt/dovetail /opt/dovetail
COPY pipeline.yaml /etc/dovetail/pipeline.yaml
ENV PATH=/opt/dovetail/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    MALLOC_ARENA_MAX=2 \
    NUMBA_CACHE_DIR=/var/cache/dovetail/kernels \
    SPARK_HOME=/opt/dovetail/lib/python3.11/site-packages/pyspark \
    SPARK_JARS=/opt/dovetail/jars \
    SPARK_LOCAL_DIRS=/var/cache/dovetail/spark \
    DOVETAIL_HOME=/var/lib/dovetail \
    DOVETAIL_FREQUENCIES=/var/lib/dovetail/frequencies \
    DOVETAIL_PIPELINE=/etc/dovetail/pipeline.yaml \
    DOVETAIL_HOST=0.0.0.0
WORKDIR /var/lib/dovetail
VOLUME ["/var/cache/dovetail", "/var/lib/dovetail"]
USER 10001:10001
STOPSIGNAL SIGTERM
# A batch job answers nobody: only `enrich` has a port, where DOVETAIL_PORT is set.
HEALTHCHECK --interval=30s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import os, sys; from deploy.image.health import main; sys.exit(main() if os.environ.get('DOVETAIL_PORT') else 0)"]
# tini reaps what Spark leaves behind of its workers.
ENTRYPOINT ["tini", "--", "python", "-m", "deploy.image.start"]
CMD ["spark", "--help"]
