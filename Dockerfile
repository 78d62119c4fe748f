# Two stages: dependencies are installed from the lock file with their hashes, and no build tool is left behind.
FROM python:3.12-slim AS build
WORKDIR /build
RUN python -m venv /opt/gpugate
COPY requirements.lock ./
RUN /opt/gpugate/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY rules rules
COPY certs certs
COPY webhook webhook
RUN /opt/gpugate/bin/pip install --no-cache-dir --no-deps . \
 && /opt/gpugate/bin/python -m compileall -q /opt/gpugate/lib

FROM python:3.12-slim
COPY --from=build /opt/gpugate /opt/gpugate
ENV PATH=/opt/gpugate/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONUTF8=1
# nobody; the manifests ask for a user that is not root and a root file system that is read only.
USER 65534:65534
EXPOSE 8443
ENTRYPOINT ["gpugate"]
CMD ["serve"]
