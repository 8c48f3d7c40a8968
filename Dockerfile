# The server and its command line in one image, without and with the CUDA device:
#   docker build --target cpu --tag warpcall:cpu .
#   docker run --rm --publish 127.0.0.1:8470:8470 --publish 127.0.0.1:9470:9470 warpcall:cpu
#   docker build --target gpu --tag warpcall:gpu .
#   docker run --rm --gpus all --publish 127.0.0.1:8470:8470 --publish 127.0.0.1:9470:9470 warpcall:gpu
# BASE_IMAGE is any Debian 12, Ubuntu 24.04 or later; both stages use it, so that the libraries which
# the binaries were linked with are the ones that they find. The CUDA images are Ubuntu 24.04's.
ARG BASE_IMAGE=debian:bookworm-slim
ARG CUDA_BUILD_IMAGE=nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04
# With cuBLASLt and cuDNN, which rows of the family library load at run time.
ARG CUDA_BASE_IMAGE=nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04

FROM ${BASE_IMAGE} AS build
WORKDIR /src
# Ahead of the sources: the packages' layer is kept while only sources change.
COPY deploy/install_packages.sh deploy/
RUN bash deploy/install_packages.sh build && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt CMakePresets.json ./
COPY proto/ proto/
COPY kernels/ kernels/
COPY server/ server/
COPY client/ client/
COPY deploy/CMakeLists.txt deploy/
RUN cmake --preset release -DWARPCALL_BUILD_TESTS=OFF \
    && cmake --build --preset release --target warpcalld warpcall \
    && install --strip -D --target-directory=/out \
         build/release/bin/warpcalld build/release/bin/warpcall

FROM ${CUDA_BUILD_IMAGE} AS build-gpu
WORKDIR /src
COPY deploy/install_packages.sh deploy/
RUN bash deploy/install_packages.sh build && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt CMakePresets.json ./
COPY proto/ proto/
COPY kernels/ kernels/
COPY server/ server/
COPY client/ client/
COPY deploy/CMakeLists.txt deploy/
RUN cmake --preset cuda-all -DWARPCALL_BUILD_TESTS=OFF \
    && cmake --build --preset cuda-all --target warpcalld warpcall \
    && install --strip -D --target-directory=/out \
         build/cuda-all/bin/warpcalld build/cuda-all/bin/warpcall

FROM ${CUDA_BASE_IMAGE} AS gpu
COPY deploy/install_packages.sh /tmp/
# CUPTI, which Profile loads at run time.
RUN bash /tmp/install_packages.sh run \
    && apt-get update && apt-get install --yes --no-install-recommends cuda-cupti-13-0 \
    && rm -rf /var/lib/apt/lists/* /tmp/install_packages.sh
COPY LICENSE /usr/share/doc/warpcall/
COPY --from=build-gpu /out/ /usr/local/bin/
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

ARG CUDA_BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="warpcall" \
      org.opencontainers.image.description="gRPC service that runs compute kernels" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${CUDA_BASE_IMAGE}"

# A number, so that Kubernetes' runAsNonRoot can tell that it is not root.
USER 10001:10001
EXPOSE 8470 9470
# `warpcall health` gives up after 5 s by itself; its message is then kept with the check.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
  CMD ["warpcall", "health"]
# Without a shell between, SIGTERM reaches the server, which drains.
ENTRYPOINT ["/usr/local/bin/warpcalld"]
# Within its network, which decides who reaches it; give TLS or tokens, and leave that flag out, elsewhere.
CMD ["--listen=0.0.0.0:8470", "--metrics_listen=0.0.0.0:9470", "--insecure"]

FROM ${BASE_IMAGE} AS cpu
COPY deploy/install_packages.sh /tmp/
RUN bash /tmp/install_packages.sh run \
    && rm -rf /var/lib/apt/lists/* /tmp/install_packages.sh
COPY LICENSE /usr/share/doc/warpcall/
COPY --from=build /out/ /usr/local/bin/

ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="warpcall" \
      org.opencontainers.image.description="gRPC service that runs compute kernels" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

# A number, so that Kubernetes' runAsNonRoot can tell that it is not root.
USER 10001:10001
EXPOSE 8470 9470
# `warpcall health` gives up after 5 s by itself; its message is then kept with the check.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
  CMD ["warpcall", "health"]
# Without a shell between, SIGTERM reaches the server, which drains.
ENTRYPOINT ["/usr/local/bin/warpcalld"]
# Within its network, which decides who reaches it; give TLS or tokens, and leave that flag out, elsewhere.
CMD ["--listen=0.0.0.0:8470", "--metrics_listen=0.0.0.0:9470", "--insecure"]
