import { describe, expect, it } from 'vitest'
import { judgeLink } from '../../../src/receiver/archive/download.ts'

const anywhere = { mediaHosts: undefined, production: true }
const listed = {
  mediaHosts: ['media.example.com', '10.0.0.5:9000', 'localhost:4000', '93.184.216.34'],
  production: true,
}
const laptop = { mediaHosts: undefined, production: false }

describe('a link that the archive may fetch', () => {
  it.each([
    ['https://media.example.com/a.png', anywhere, 'public'],
    ['https://93.184.216.34/a.png', anywhere, 'public'],
    ['http://media.example.com/a.png', anywhere, 'refused'],
    ['http://127.0.0.1:4000/a.png', anywhere, 'refused'],
    ['https://localhost/a.png', anywhere, 'refused'],
    ['https://db.internal/a.png', anywhere, 'refused'],
    ['https://10.0.0.5/a.png', anywhere, 'refused'],
    ['https://[::ffff:10.0.0.5]/a.png', anywhere, 'refused'],
    ['https://169.254.169.254/latest', anywhere, 'refused'],
    ['https://user:secret@media.example.com/a.png', anywhere, 'refused'],
    ['ftp://media.example.com/a.png', anywhere, 'refused'],
    ['no link', anywhere, 'refused'],
    ['https://media.example.com/a.png', listed, 'public'],
    // A name that is listed has to be public all the same: that is seen where it is dialled.
    ['http://media.example.com/a.png', listed, 'refused'],
    ['https://elsewhere.example.com/a.png', listed, 'refused'],
    ['http://10.0.0.5:9000/a.png', listed, 'named'],
    ['http://10.0.0.5/a.png', listed, 'refused'],
    ['http://localhost:4000/a.png', listed, 'named'],
    ['http://0x7f.1:4000/a.png', listed, 'refused'],
    ['http://127.0.0.1:4000/a.png', laptop, 'named'],
    ['http://localhost:4000/a.png', laptop, 'named'],
    ['https://10.0.0.5/a.png', laptop, 'refused'],
    ['http://127.example.com/a.png', laptop, 'refused'],
    ['http://127.0.0.1:4000/a.png', { ...laptop, mediaHosts: ['media.example.com'] }, 'refused'],
  ])('%s with %o: %s', (link, rules, kind) => {
    expect(judgeLink(link, rules).kind).toBe(kind)
  })
})
