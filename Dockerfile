# The server and its command line in one image, without and with the CUDA device:
#   docker build --target cpu --tag warpcall:cpu .
#   docker run --rm --publish 127.0.0.1:8470:8470 --publish 127.0.0.1:9470:9470 warpcall:cpu
#   docker build --target gpu --tag warpcall:gpu .
#   docker run --rm --gpus all --publish 127.0.0.1:8470:8470 --publish 127.0.0.1:9470:9470 warpcall:gpu
# BASE_IMAGE is any Debian 12, Ubuntu 24.04 or later; what compiles and what runs have the same, so that the libraries
# which the binaries were linked with are the ones that they find.
ARG BASE_IMAGE=debian:bookworm-20250520-slim

FROM scratch AS sources
COPY CMakeLists.txt CMakePresets.json /
COPY proto/ /proto/
COPY kernels/ /kernels/
COPY server/ /server/
COPY client/ /client/
COPY deploy/CMakeLists.txt deploy/build_programs.sh /deploy/

# Without the sources: its layers are kept while only they change.
FROM ${BASE_IMAGE} AS compiler
COPY deploy/install_packages.sh /tmp/
RUN bash /tmp/install_packages.sh build && rm -rf /var/lib/apt/lists/*
WORKDIR /src

FROM compiler AS build
COPY --from=sources / /src/
ARG REVISION=unknown
RUN WARPCALL_REVISION=${REVISION} bash deploy/build_programs.sh release /out

# What both images have but for the programs.
FROM ${BASE_IMAGE} AS service
COPY deploy/install_packages.sh /tmp/
# The folder is for --compile_cache and --tuning_cache: a new volume there is its user's as well.
RUN bash /tmp/install_packages.sh run && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /tmp/install_packages.sh \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/cache/warpcall
COPY LICENSE /usr/share/doc/warpcall/
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="warpcall" \
      org.opencontainers.image.description="gRPC service that runs compute kernels" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
# Threads of GNU's OpenMP, on which oneDNN runs, give their cores back soon: its own count is 300 000. It goes before
# OMP_WAIT_POLICY.
ENV GOMP_SPINCOUNT=1000
# A number, so that Kubernetes' runAsNonRoot can tell that it is not root.
USER 10001:10001
EXPOSE 8470 9470
# Ready or not, by the metrics port, which needs neither a certificate nor a token. Prints the status line, and the
# reason where it is not ready. With another --metrics_listen give another check: --health-cmd.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9470 && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && awk 'BEGIN {failed = 1} NR == 1 {failed = $2 != 200; print} END {print; exit failed}' <&3"]
# Without a shell between, SIGTERM reaches the server, which drains.
ENTRYPOINT ["/usr/local/bin/warpcalld"]
# Within its network, which decides who reaches it; give TLS or tokens, and leave that flag out, elsewhere.
CMD ["--listen=0.0.0.0:8470", "--metrics_listen=0.0.0.0:9470", "--insecure"]

FROM service AS cpu
COPY --from=build /out/ /usr/local/bin/

# CUDA as PyPI has it, pinned: what compiles, and what the server loads at run time (cuBLASLt, cuDNN, CUPTI, NVRTC).
FROM compiler AS cuda
COPY deploy/install_cuda.sh deploy/cuda_build_requirements.txt deploy/cuda_run_requirements.txt /tmp/
RUN bash /tmp/install_cuda.sh /usr/local/cuda /opt/cuda

FROM cuda AS build-gpu
# cuda-all is for every GPU from Ampere to Blackwell, cuda for the H100 and H200 alone.
ARG CUDA_PRESET=cuda-all
COPY --from=sources / /src/
ENV CUDACXX=/usr/local/cuda/bin/nvcc
ARG REVISION=unknown
RUN WARPCALL_REVISION=${REVISION} bash deploy/build_programs.sh ${CUDA_PRESET} /out

FROM service AS gpu
COPY --from=cuda /opt/cuda/ /usr/local/cuda/
COPY --from=build-gpu /out/ /usr/local/bin/
# NVIDIA's container toolkit reads the last three.
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility NVIDIA_REQUIRE_CUDA="cuda>=13.0"

# Without --target: the one that runs anywhere.
FROM cpu
