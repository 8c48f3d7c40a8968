# The server and its command line in one image:
#   docker build --target cpu --tag warpcall:cpu .
#   docker run --rm --publish 127.0.0.1:8470:8470 --publish 127.0.0.1:9470:9470 warpcall:cpu
# BASE_IMAGE is any Debian 12, Ubuntu 24.04 or later; both stages use it, so that the libraries which
# the binaries were linked with are the ones that they find.
ARG BASE_IMAGE=debian:bookworm-slim

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
RUN cmake --preset release -DWARPCALL_BUILD_TESTS=OFF \
    && cmake --build --preset release --target warpcalld warpcall \
    && install --strip -D --target-directory=/out \
         build/release/bin/warpcalld build/release/bin/warpcall

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
CMD ["--listen=0.0.0.0:8470", "--metrics_listen=0.0.0.0:9470"]
