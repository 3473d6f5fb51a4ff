# One image per service, with only its own code and packages:
#   docker build --target edge-auth -t gateway/edge-auth .
# The build fetches everything, by the lock file; a running container fetches nothing.
ARG DENO_IMAGE=denoland/deno:debian-2.9.6
FROM ${DENO_IMAGE} AS base
ENV DENO_DIR=/deno-dir \
    DENO_NO_PROMPT=1 \
    DENO_NO_UPDATE_CHECK=1 \
    DENO_V8_FLAGS=--max-semi-space-size=4,--no-allocation-site-pretenuring,--memory-reducer-delay-ms=30000 \
    MALLOC_ARENA_MAX=1 \
    MALLOC_MMAP_THRESHOLD_=32768 \
    NO_COLOR=1 \
    HOST=0.0.0.0 \
    OPS_HOST=0.0.0.0 \
    OPS_PORT=9090
WORKDIR /app
COPY deno.json deno.lock ./
COPY services/edge-auth/deno.json services/edge-auth/
COPY services/chat-worker/deno.json services/chat-worker/
COPY services/media-worker/deno.json services/media-worker/
COPY services/key-admin/deno.json services/key-admin/
COPY services/model-simulator/deno.json services/model-simulator/
COPY shared shared
# The commit, shown beside the version.
ARG REVISION=
RUN [ -z "$REVISION" ] || sed -i 's/"version": "[^"]*/&+'"$REVISION/" shared/deno.json
COPY deploy/image/health.ts deploy/image/slim.ts deploy/image/packages deploy/image/
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 \
  CMD ["deno", "run", "--cached-only", "--no-lock", "--allow-env=OPS_PORT", "--allow-net=127.0.0.1", "deploy/image/health.ts"]

FROM base AS edge-auth
COPY services/edge-auth services/edge-auth
RUN deploy/image/packages services/edge-auth/main.ts
USER 10001:10001
EXPOSE 8080
ENTRYPOINT ["deno", "run", "--cached-only", "--frozen", "--allow-net", "--allow-env", \
  "--allow-read=/app,/run/secrets,/etc/gateway", "services/edge-auth/main.ts"]

FROM base AS model-simulator
COPY services/model-simulator services/model-simulator
RUN deploy/image/packages services/model-simulator/main.ts
USER 10001:10001
EXPOSE 8090
ENTRYPOINT ["deno", "run", "--cached-only", "--frozen", "--allow-net", "--allow-env", \
  "--allow-read=/app", "services/model-simulator/main.ts"]

FROM base AS chat-worker
COPY services/chat-worker services/chat-worker
COPY deploy/check deploy/check
COPY deploy/image/gateway /usr/local/bin/gateway
RUN deploy/image/packages services/chat-worker/main.ts deploy/check/main.ts
USER 10001:10001
ENTRYPOINT ["deno", "run", "--cached-only", "--frozen", "--allow-net", "--allow-env", \
  "--allow-read=/app,/run/secrets,/etc/gateway", "services/chat-worker/main.ts"]

FROM base AS media-worker
COPY services/media-worker services/media-worker
COPY deploy/check deploy/check
COPY deploy/image/gateway /usr/local/bin/gateway
RUN deploy/image/packages services/media-worker/main.ts deploy/check/main.ts
USER 10001:10001
ENTRYPOINT ["deno", "run", "--cached-only", "--frozen", "--allow-net", "--allow-env", \
  "--allow-read=/app,/run/secrets,/etc/gateway", "services/media-worker/main.ts"]

# The password hash is native code that reads ldd to select its build.
FROM base AS key-admin
COPY services/key-admin services/key-admin
COPY deploy/check deploy/check
COPY deploy/image/gateway /usr/local/bin/gateway
RUN deploy/image/packages services/key-admin/main.ts services/key-admin/cli.ts \
  deploy/check/main.ts
USER 10001:10001
EXPOSE 8081
ENTRYPOINT ["deno", "run", "--cached-only", "--frozen", "--allow-net", "--allow-env", "--allow-ffi", \
  "--allow-read=/app,/run/secrets,/etc/gateway,/usr/bin/ldd", "services/key-admin/main.ts"]
