# The base image. A release names it by digest, so that a later build of the release has the same base:
#   npm run release -- 1.2.3 --base node:24-bookworm-slim@"$(docker buildx imagetools inspect node:24-bookworm-slim --format '{{.Manifest.Digest}}')"
# Without docker: skopeo inspect --format '{{.Digest}}' docker://docker.io/library/node:24-bookworm-slim
ARG BASE=node:24-bookworm-slim

# Builds the package from the sources.
FROM ${BASE} AS package
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
COPY laptop ./laptop
RUN npm ci --ignore-scripts
COPY . .
RUN npm pack

# Installs the dependencies of the lock file and the optional packages of a receiver: sharp for thumbnails, the S3
# client and the trace exporter, without those of engines and laptops. Then unpacks the package, which contains the
# patched driver.
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
# Debian's ffmpeg, which gets security fixes, makes posters of archived videos.
RUN apt-get update && apt-get install -y --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
ENV NODE_ENV=production
WORKDIR /app
COPY --from=installed /app ./
# A volume for TMPDIR takes its owner from this folder.
RUN install --directory --owner=node --group=node --mode=700 /var/spool/mediadock
USER node
EXPOSE 3000 3001
# Liveness only: a receiver that waits for Postgres must not be restarted.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT || 3000}/healthz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# Without a shell, SIGTERM reaches the program. The file system may be read-only, except for TMPDIR and an archive folder.
ENTRYPOINT ["node", "bin/mediadock.js"]
CMD ["start", "receiver"]
