import type { Random } from '../random.ts'

/** Colours of one picture, as hex: the sky from top to horizon, the light in it, and the land from far to near. */
export type Palette = {
  sky: readonly [string, string, string]
  light: string
  land: readonly [string, string, string, string]
  accents: readonly [string, string, string]
}

const palettes: readonly [Palette, ...Palette[]] = [
  {
    sky: ['#1b1e4b', '#7b3f8c', '#ff9e6d'],
    light: '#ffe2b8',
    land: ['#a85a8b', '#6b3a78', '#3c2459', '#1a1236'],
    accents: ['#ff6f61', '#ffd166', '#48bfe3'],
  },
  {
    sky: ['#04202c', '#0b5563', '#7fd1ae'],
    light: '#f4f9d9',
    land: ['#3f8f86', '#23666b', '#12434d', '#06222b'],
    accents: ['#f4a259', '#f25f5c', '#cdeac0'],
  },
  {
    sky: ['#2b1055', '#7597de', '#f6d6ff'],
    light: '#ffffff',
    land: ['#9a8fd6', '#6a62b7', '#3d3a86', '#1c1b4b'],
    accents: ['#ff7eb6', '#ffe66d', '#7afcff'],
  },
  {
    sky: ['#3a0d12', '#b23a48', '#fcb97d'],
    light: '#fff1d0',
    land: ['#c8553d', '#8c2f39', '#591c2c', '#2a0c16'],
    accents: ['#f7b267', '#f4845f', '#ffd6a5'],
  },
  {
    sky: ['#0b132b', '#1c4573', '#8ecae6'],
    light: '#fdfcdc',
    land: ['#5a8fb5', '#2f6690', '#16425b', '#081f2f'],
    accents: ['#ffb703', '#fb8500', '#e0fbfc'],
  },
  {
    sky: ['#10231a', '#40745a', '#dbe7b0'],
    light: '#fffbe0',
    land: ['#7ba05b', '#4a7c4e', '#28523a', '#112a20'],
    accents: ['#f2c14e', '#f78154', '#b4d6c1'],
  },
  {
    sky: ['#20053d', '#c2257a', '#ffb56b'],
    light: '#fff4c2',
    land: ['#d1477a', '#8a2b72', '#4b1b5a', '#1d0a33'],
    accents: ['#00c2d1', '#f9e900', '#f6af65'],
  },
  {
    sky: ['#22223b', '#4a4e69', '#f2e9e4'],
    light: '#ffffff',
    land: ['#9a8c98', '#6d6480', '#43405d', '#1f1e33'],
    accents: ['#e07a5f', '#f2cc8f', '#81b29a'],
  },
  {
    sky: ['#001233', '#023e7d', '#ff8fa3'],
    light: '#ffe5ec',
    land: ['#8f5c9e', '#4a4287', '#1f2f66', '#061539'],
    accents: ['#ffd60a', '#ff477e', '#72efdd'],
  },
  {
    sky: ['#33210e', '#b9722f', '#ffe0a3'],
    light: '#fffaf0',
    land: ['#d39a4d', '#98602a', '#5c3818', '#2a190a'],
    accents: ['#2a9d8f', '#e76f51', '#264653'],
  },
]

export function pickPalette(random: Random): Palette {
  return random.pick(palettes)
}
