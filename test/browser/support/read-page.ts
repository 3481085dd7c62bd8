/** A page as it is sent, for tests of its words and rows, which need no browser. `said` are its messages, by role. */
export async function readPage(url: string, method = 'GET') {
  const response = await fetch(url, { method, headers: { accept: 'text/html' } })
  const text = await response.text()
  const saidOf = (role: string) =>
    new RegExp(`role="${role}">([^]*?)</p>`).exec(text)?.[1]?.replaceAll(/<[^>]*>/g, '') ?? ''
  return {
    url: response.url,
    status: response.status,
    title: /<title>([^<]*)/.exec(text)?.[1],
    main: /<main[^]*<\/main>/.exec(text)?.[0] ?? '',
    table: /<tbody[^]*<\/tbody>/.exec(text)?.[0] ?? '',
    rows: Array.from(text.matchAll(/ data-row="([^"]*)"/g), ([, id]) => id),
    said: { status: saidOf('status'), alert: saidOf('alert') },
  }
}
