import { describe, expect, it } from 'vitest'
import { addressOf, senderOf } from '../../../src/platform/http/sender.ts'

describe('the address of a sender', () => {
  it.each([
    ['192.0.2.7', '192.0.2.7', '192.0.2.7'],
    ['192.0.2.7:51234', '192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7', '192.0.2.7'],
    ['2001:db8:1:2:3::4', '2001:db8:1:2:3::4', '2001:db8:1:2::/64'],
    ['not an ip', 'not an ip', 'unknown'],
  ])('of %s is %s, and its owner %s', (remote, address, sender) => {
    expect(addressOf(remote)).toBe(address)
    expect(senderOf(remote)).toBe(sender)
  })
})
