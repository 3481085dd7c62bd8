import { start } from './start/start.ts'

// The same as `bin/mediadock.js start`, for supervisors that name this file. An old Node cannot parse this file and
// prints a stack trace. bin/mediadock.js reports the required Node version in one line instead.
process.exit(await start(process.argv[2] ?? 'all', process.env))
