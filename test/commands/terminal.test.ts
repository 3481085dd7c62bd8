import { describe, expect, it } from 'vitest'
import { tableLines, tinted } from '../../src/commands/terminal.ts'

const id = '2f0d6c1e-0000-4000-8000-000000000001'
const headings = ['received', 'outcome', 'reason', 'request']
const row = ['2026-01-31T03:00:00.000Z', 'refused', 'no_matching_secret', id]
const whole = [...row].join('  ').length

describe('a table', () => {
  it('is not shortened if the terminal is wide enough', () => {
    expect(tableLines(headings, [row], { columns: whole, colours: false })[1]).toBe(row.join('  '))
  })

  it.each([whole - 1, whole - 10, 78])('in %i columns keeps ids and outcomes whole, and its lines fit', (columns) => {
    const [heading = '', line = ''] = tableLines(headings, [row], { columns, colours: false })
    expect(line).toHaveLength(columns)
    expect(line).toMatch(new RegExp(`^2026\\S*… +refused +\\S+ +${id}$`))
    expect(heading.indexOf('request')).toBe(line.indexOf(id))
  })

  it('is not shortened if that would not make it fit', () => {
    expect(tableLines(headings, [row], { columns: 50, colours: false })[1]).toBe(row.join('  '))
  })

  it('never splits a character', () => {
    const [, line] = tableLines(['name', 'id'], [['🦊🦊🦊🦊🦊🦊', id]], { columns: id.length + 2 + 8, colours: false })
    expect(line).toBe(`🦊🦊🦊…   ${id}`)
    expect(line?.isWellFormed()).toBe(true)
  })

  it('colours only known words in known columns', () => {
    const lines = tableLines(['outcome', 'key'], [['refused', 'refused']], { columns: 80, colours: true })
    expect(lines).toEqual(['outcome  key', '\u001b[31mrefused\u001b[39m  refused'])
  })
})

it('a word without a colour stays unchanged', () => {
  expect(tinted('constructor', { columns: 80, colours: true })).toBe('constructor')
})
