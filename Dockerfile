# What all of it stands on. A release names it by its digest, so that the same release is the same image tomorrow:
#   npm run release -- 1.2.3 --base node:24-bookworm-slim@"$(docker buildx imagetools inspect node:24-bookworm-slim --format '{{.Manifest.Digest}}')"
# Without docker: skopeo inspect --format '{{.Digest}}' docker://docker.io/library/node:24-bookworm-slim
ARG BASE=node:24-bookworm-slim

# The package, made of the sources.
FROM ${BASE} AS package
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
COPY laptop ./laptop
RUN npm ci --ignore-scripts
COPY . .
RUN npm pack

# What it depends on, as the lock file has it, and of the optional packages those that a receiver uses: sharp for
# thumbnails, the client of S3, and what sends traces. What engines and a laptop have besides is left out. Then the
# package itself over it, which brings the patched driver along.
FROM ${BASE} AS installed
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm pkg delete workspaces devDependencies peerDependencies peerDependenciesMeta \
    && npm pkg set 'dependencies.sharp=*' 'dependencies.@aws-sdk/client-s3=*' 'dependencies.@opentelemetry/api=*' \
      'dependencies.@opentelemetry/exporter-trace-otlp-proto=*' 'dependencies.@opentelemetry/resources=*' \
      'dependencies.@opentelemetry/sdk-trace=*' \
    && npm i --omit=dev --ignore-scripts
COPY --from=package /build/mediadock-*.tgz /tmp/
RUN rm -r node_modules/postgres package-lock.json .npmrc && tar -xzf /tmp/mediadock-*.tgz --strip-components=1

FROM ${BASE}
# Debian's, which gets security fixes: it makes posters of archived videos.
RUN apt-get update && apt-get install -y --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
# Memory that a burst took is given back: see docs/limits.md, "Memory".
ENV NODE_ENV=production MALLOC_MMAP_THRESHOLD_=8192
WORKDIR /app
COPY --from=installed /app ./
# For TMPDIR on a volume, which takes its owner from here.
RUN install --directory --owner=node --group=node --mode=700 /var/spool/mediadock
USER node
EXPOSE 3000 3001
# Whether it lives, not whether Postgres does: one that waits for Postgres is not to be started anew.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT || 3000}/healthz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# No shell in between: SIGTERM reaches the program. It writes nothing: the file system may be read-only.
ENTRYPOINT ["node", "--max-old-space-size=512", "--max-semi-space-size=16", "dist/cli.js"]
CMD ["start", "receiver"]
