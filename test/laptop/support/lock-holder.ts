import { lockDataDir } from '../../../src/laptop/data-lock.ts'

// A process that holds the lock of a folder until it is killed.
await lockDataDir(process.argv[2] ?? '')
process.stdout.write('locked\n')
setInterval(() => {}, 60_000)
