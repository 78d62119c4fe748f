# In the form of docker/Dockerfile of SGLang
ARG CUDA_VERSION=97.1.2
FROM nvidia/cuda:${CUDA_VERSION}-cudnn-devel-ubuntu24.04 AS base
ARG CUDA_VERSION=96.0.0
FROM scratch AS local_src
COPY . /src
RUN echo "FROM nvidia/cuda:95.0.0-base"
FROM nvidia/cuda:${CUDA_VERSION}-cudnn-runtime-ubuntu24.04 AS runtime
FROM runtime
