import { runCommand } from './commands/run.ts'

// `mediadock … | head` has read enough: that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1))
// Started by bin/mediadock.js: when that is killed, nobody else would pass a signal on.
if (process.connected) {
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'))
  process.channel?.unref()
}
process.exitCode = await runCommand(process.argv.slice(2), process.env)
