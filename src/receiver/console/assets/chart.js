// Draws every [data-chart] of a page: its JSON is the Chart of chart.ts. Colours
// come from the style sheet, so both schemes are right; times are UTC.
// oxlint-disable-next-line import/no-unassigned-import -- for what it does, and before uPlot
import './language.js'
import uPlot from './uplot.js'

const drawn = new Map()
const heightPixels = 160

function colour(tone, element) {
  const known = ['good', 'warn', 'bad', 'accent', 'idle', 'strong']
  return resolved(`--chart-${known.includes(tone) ? tone : 'accent'}`, element)
}

/** The colour of a custom property for a canvas. The element resolves light-dark(). */
function resolved(name, element) {
  const probe = element.appendChild(document.createElement('i'))
  probe.style.color = `var(${name})`
  const value = getComputedStyle(probe).color
  probe.remove()
  return value
}

/** Vertical lines at times. A bar stands in the middle of its time, so the lines are as far to the left as the bars. */
function marksOf(marks, stroke, beside) {
  return {
    hooks: {
      draw: ({ ctx, bbox, valToPos }) => {
        ctx.save()
        ctx.strokeStyle = stroke
        ctx.lineWidth = 2 * devicePixelRatio
        ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio])
        for (const at of marks) {
          // The present minute has no point yet: its marks are on the edge.
          const right = bbox.left + bbox.width
          const x = Math.min(right, Math.max(bbox.left, Math.round(valToPos(at - beside, 'x', true))))
          ctx.beginPath()
          ctx.moveTo(x, bbox.top)
          ctx.lineTo(x, bbox.top + bbox.height)
          ctx.stroke()
        }
        ctx.restore()
      },
    },
  }
}

/** Draws a point for a value between two gaps, which has no line. */
function alone({ data }, series) {
  const values = data[series]
  const known = (at) => typeof values[at] === 'number'
  return values.flatMap((_, at) => (known(at) && !known(at - 1) && !known(at + 1) ? [at] : []))
}

/** Stacks the bars: each series is added to those below it, and the highest is drawn first. */
function stacked(series) {
  const sums = series[0]?.values.map(() => 0) ?? []
  return series.map(({ values }) => values.map((value, at) => (sums[at] += value ?? 0)))
}

/** Half a step: a bar stands over its time, so the first and the last need this beside them. */
function besideOf({ kind, at }) {
  return kind === 'bars' && at.length > 1 ? (at[1] - at[0]) / 2 : 0
}

function scalesOf(spec) {
  const beside = besideOf(spec)
  return {
    x: { range: (_plot, first, last) => [first - beside, last + beside] },
    y: { range: (_plot, _min, max) => [0, Math.max(1, max * 1.1)] },
  }
}

function draw(element) {
  const spec = JSON.parse(element.dataset.chart)
  const bars = spec.kind === 'bars'
  const shown = bars ? stacked(spec.series) : spec.series.map(({ values }) => values)
  const order = spec.series.map((_, at) => at)
  if (bars) order.reverse()
  const [soft, line] = [resolved('--soft', element), resolved('--line', element)]
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: '11px system-ui' }
  const series = order.map((at) => {
    const { label, tone, values } = spec.series[at]
    const stroke = colour(tone, element)
    const idle = bars
      ? values.reduce((sum, value) => sum + (value ?? 0), 0)
      : (values.findLast((value) => value !== null) ?? '—')
    const value = (_plot, _value, _series, index) =>
      index === null || index === undefined ? idle : (values[index] ?? '—')
    return {
      label,
      stroke,
      value,
      width: bars ? 0 : 1.5,
      points: { show: !bars, size: 4, fill: stroke, filter: alone },
      ...(bars && { fill: stroke, paths: uPlot.paths.bars({ size: [0.9, 24] }) }),
    }
  })
  const options = {
    width: Math.max(200, element.clientWidth),
    height: heightPixels,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    cursor: { y: false, drag: { x: false, y: false } },
    legend: { live: true },
    scales: scalesOf(spec),
    axes: [
      { ...axis, space: 70, values: timesOfDay },
      { ...axis, size: 44 },
    ],
    series: [
      {
        label: '\u00a0',
        value: (_plot, seconds) => {
          if (seconds === null || seconds === undefined) return bars ? 'total' : 'last'
          return `${new Date(seconds * 1000).toISOString().slice(11, 16)} UTC`
        },
      },
      ...series,
    ],
    plugins: [marksOf(spec.marks ?? [], resolved('--text', element), besideOf(spec))],
  }
  drawn.get(element)?.plot.destroy()
  element.replaceChildren()
  const plot = new uPlot(options, [spec.at, ...order.map((at) => shown[at])], element)
  if (spec.leads) leadFrom(plot, spec, shown)
  drawn.set(element, {
    plot,
    text: element.dataset.chart,
    width: element.clientWidth,
  })
}

/** A click opens the list of the clicked time and, for bars, of the clicked series. */
function leadFrom(plot, { leads, at, series, kind }, shown) {
  plot.over.classList.add('leads')
  plot.over.title = 'Click to list the rows of this time'
  plot.over.addEventListener('click', () => {
    const { idx, top } = plot.cursor
    const since = at[idx]
    if (since === undefined) return
    const url = new URL(leads.path, location.origin)
    url.searchParams.set('since', new Date(since * 1000).toISOString())
    url.searchParams.set('until', new Date((since + leads.step) * 1000).toISOString())
    const value = plot.posToVal(top, 'y')
    const hit =
      kind === 'bars' ? shown.findIndex((sums, place) => series[place].values[idx] > 0 && value <= sums[idx]) : -1
    if (leads.by && hit >= 0) url.searchParams.set(leads.by, series[hit].label)
    location.assign(url)
  })
}

function timesOfDay(_plot, splits) {
  const days = splits.length > 1 && splits.at(-1) - splits[0] > 2 * 86_400
  return splits.map((seconds) => {
    const iso = new Date(seconds * 1000).toISOString()
    return days ? iso.slice(5, 10) : iso.slice(11, 16)
  })
}

const resize = new ResizeObserver((entries) => {
  for (const { target } of entries) if (drawn.get(target)?.width !== target.clientWidth) draw(target)
})

/** Draws new and changed charts, and removes those that are no longer on the page. */
function drawAll() {
  for (const [element, { plot }] of drawn) {
    if (element.isConnected) continue
    plot.destroy()
    resize.unobserve(element)
    drawn.delete(element)
  }
  for (const element of document.querySelectorAll('[data-chart]')) {
    const known = drawn.get(element)
    if (known?.text === element.dataset.chart && element.childElementCount > 0) continue
    draw(element)
    if (!known) resize.observe(element)
  }
  for (const details of document.querySelectorAll('[data-chart-table][open]')) tabulate(details)
}

const tabulated = new WeakMap()

/** Writes the figures of a chart as a table when it is opened. The tables of all charts would be most of the page. */
function tabulate(details) {
  const { chart } = details.closest('figure').querySelector('[data-chart]').dataset
  if (tabulated.get(details) === chart) return
  tabulated.set(details, chart)
  const { at, series } = JSON.parse(chart)
  const make = (name, ...content) => {
    const element = document.createElement(name)
    element.append(...content)
    return element
  }
  const figure = (name, content) => Object.assign(make(name, content), { className: 'number' })
  const heads = [make('th', 'From'), ...series.map(({ label }) => figure('th', label))]
  for (const head of heads) head.scope = 'col'
  const rows = at.flatMap((second, row) => {
    if (series.every(({ values }) => values[row] === null)) return []
    const iso = new Date(second * 1000).toISOString()
    const time = Object.assign(make('time', `${iso.slice(0, 10)} ${iso.slice(11, 19)}`), { dateTime: iso, title: iso })
    return [make('tr', make('td', time), ...series.map(({ values }) => figure('td', String(values[row] ?? '—'))))]
  })
  const table = make('table', make('thead', make('tr', ...heads)), make('tbody', ...rows))
  details.querySelector('.scroll').replaceChildren(table)
}

/** The event does not bubble. */
document.addEventListener(
  'toggle',
  ({ target }) => target.matches('[data-chart-table][open]') && tabulate(target),
  true,
)

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => [...drawn.keys()].forEach(draw))
// Parts of a page that are fetched again bring their charts with them.
document.addEventListener('htmx:after:swap', drawAll)
drawAll()
