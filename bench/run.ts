import { benchAcknowledging } from './acknowledging.ts'
import { benchConsole } from './console.ts'
import { benchLanding } from './landing.ts'

/** `npm run bench [-- --quick]`, `npm run bench -- landing [--quick]` and `npm run bench -- console [--quick]`: see docs/benchmarks.md. */
const [what, ...args] = process.argv.slice(2)
if (what === 'console') await benchConsole(args)
else if (what === 'landing') await benchLanding(args.includes('--quick'))
else await benchAcknowledging(process.argv.includes('--quick'))
