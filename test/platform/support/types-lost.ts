import net from 'node:net'
import { createPool } from '../../../src/platform/postgres/postgres.ts'

// A pool whose server goes away for good while a new connection asks for the array types.
const target = new URL(process.env['DATABASE_URL'] ?? '')
const proxy = net.createServer((client) => {
  const upstream = net.connect(Number(target.port), target.hostname)
  client.on('error', () => {}).on('close', () => upstream.destroy())
  upstream.on('error', () => {}).on('data', (chunk: Buffer) => void client.write(chunk))
  client.on('data', (chunk: Buffer) => {
    if (!chunk.includes('b.typarray')) return void upstream.write(chunk)
    client.destroy()
    proxy.close()
  })
})
proxy.listen(0, '127.0.0.1', async () => {
  const address = proxy.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const through = new URL(target)
  through.port = String(address.port)
  const pool = createPool({ url: through.href, max: 1 })
  for (let turn = 0; turn < 3; turn += 1)
    await pool.client`select 1`.catch((error: Error) => process.stdout.write(`failed: ${error.message}\n`))
  process.stdout.write('alive\n')
  await pool.close()
})
