import { start } from './start/start.ts'

// The same as `bin/mediadock.js start`, for supervisors that name this file. An old Node cannot even read it, and
// ends in a stack: what is documented is bin/mediadock.js, which says in one line which Node it needs.
process.exit(await start(process.argv[2] ?? 'all', process.env))
