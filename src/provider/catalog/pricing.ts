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

/** Multiplies decimals exactly. The catalog allows six places, so each number is a whole number of millionths. */
function multiplyExactly(numbers: readonly number[]): string {
  const product = numbers.reduce((all, number) => all * BigInt(Math.round(number * 1_000_000)), 1n)
  const places = 6 * numbers.length
  const digits = product.toString().padStart(places + 1, '0')
  return `${digits.slice(0, -places)}.${digits.slice(-places)}`.replace(/\.?0+$/, '')
}
