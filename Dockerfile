# Two stages: all is installed from lock files with hashes, and no build tool is left behind.
# A tag moves; a release gives the digest as well: docs/security.md, "What a release is made of".
ARG BASE=python:3.12.14-slim-trixie

FROM ${BASE} AS build
WORKDIR /build
RUN python -m venv --without-pip /opt/gpugate
COPY requirements.lock requirements-build.lock ./
ENV PIP_NO_CACHE_DIR=1
RUN pip --python /opt/gpugate/bin/python install --require-hashes --only-binary :all: -r requirements.lock \
 && pip install --require-hashes --only-binary :all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY rules rules
COPY certs certs
COPY webhook webhook
# The version, which Git gives elsewhere; 0.0.0 without.
ARG VERSION
RUN SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION} pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/gpugate/bin/python install --no-deps --no-index dist/*.whl

FROM ${BASE}
ARG BASE
LABEL org.opencontainers.image.base.name=${BASE}
COPY --from=build /opt/gpugate /opt/gpugate
ENV PATH=/opt/gpugate/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONUTF8=1
# glibc's default, which it raises after each large block if it is not set: up to 64 MiB of each thread would not be
# returned after large reviews. See mallopt(3), M_MMAP_THRESHOLD.
ENV MALLOC_TRIM_THRESHOLD_=131072
# nobody; the manifests ask for a user that is not root and a root file system that is read only.
USER 65534:65534
EXPOSE 8443
ENTRYPOINT ["gpugate"]
CMD ["serve"]
