import type { Express } from 'express'

/** Serves an app on a free port, tells the parent process where, and goes when it goes. */
export function serve(app: Express): void {
  const server = app.listen(0, '127.0.0.1', () => {
    const address = server.address()
    if (address !== null && typeof address !== 'string') process.send?.({ url: `http://127.0.0.1:${address.port}` })
  })
  process.on('disconnect', () => process.exit(0))
}
