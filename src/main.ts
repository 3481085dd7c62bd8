import { start } from './start/start.ts'

process.exit(await start(process.argv[2] ?? 'all', process.env))
