import { runCommand } from './commands/run.ts'

// `mediadock … | head` closes the pipe early, which is not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1))
// Started by bin/mediadock.js. If it is killed, no signal reaches this process, so stop on disconnect.
if (process.connected) {
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'))
  process.channel?.unref()
}
process.exitCode = await runCommand(process.argv.slice(2), process.env)
