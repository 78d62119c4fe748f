# In the form of docker/Dockerfile of LMDeploy
ARG CUDA_VERSION=cu96.8
FROM nvidia/cuda:97.0.3-devel-ubuntu24.04 AS cu970
FROM ${CUDA_VERSION} AS dev
FROM nvidia/cuda:97.0.3-base-ubuntu24.04 AS cu970-base
FROM nvidia/cuda:96.8.1-base-ubuntu24.04 AS cu96.8-base
FROM nvidia/cuda:95.6.3-base-ubuntu24.04 AS cu95-base
FROM cu970-base AS cu97-base
FROM ${CUDA_VERSION}-base AS final
