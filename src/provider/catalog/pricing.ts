import type { Model } from '../../wire/schemas.ts'
import type { Input } from './input.ts'

/**
 * Returns the price of a generation as an exact decimal (decisions, price): `credits_base` times one factor of each
 * parameter in `multipliers`. Submit and estimate both call this, so they agree (spec, submit rule 3). `input` is
 * validated and has its defaults.
 */
export function priceOf(model: Pick<Model, 'pricing'>, input: Input): string {
  const { credits_base: base, multipliers = {} } = model.pricing
  const factors = Object.entries(multipliers).map(([name, byValue]) => byValue[String(input[name])] ?? 1)
  return multiplyExactly([base, ...factors])
}

/** Multiplies decimals exactly, without binary rounding. */
function multiplyExactly(numbers: readonly number[]): string {
  let digits = 1n
  let decimals = 0
  for (const number of numbers) {
    const [whole = '0', fraction = ''] = plainDecimal(number).split('.')
    digits *= BigInt(whole + fraction)
    decimals += fraction.length
  }
  if (decimals === 0) return digits.toString()
  const padded = digits.toString().padStart(decimals + 1, '0')
  return `${padded.slice(0, -decimals)}.${padded.slice(-decimals)}`.replace(/\.?0+$/, '')
}

/** Writes a number without an exponent, with at most 12 decimals. The catalog allows six. */
function plainDecimal(number: number): string {
  const text = String(number)
  return text.includes('e') ? number.toFixed(12) : text
}
