import { runCommand } from '../../src/commands/run.ts'

// Runs commands of the command line, given as JSON. The process ends if none of them leaves anything open.
const lines: string[][] = JSON.parse(process.argv[2] ?? '[]')
for (const args of lines) {
  const code = await runCommand(args, process.env)
  // 1 is the result of `status` without a receiver, for example.
  if (code > 1) throw new Error(`mediadock ${args.join(' ')} exited with ${code}`)
}
