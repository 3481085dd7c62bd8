import type { DemoKey } from '../provider/program.ts'
import type { ReceiverSettings } from '../receiver/settings.ts'

type Welcome = {
  urls: Record<string, string>
  demoKeys: readonly DemoKey[]
  settings: ReceiverSettings | undefined
  /** True if the database is the embedded one. */
  isEmbedded: boolean
}

/** The text for a person after the start: addresses, demo keys, and one command to try. */
export function welcome({ urls, demoKeys, settings, isEmbedded }: Welcome): string {
  const lines = ['', 'mediadock is up', '', ...Object.entries(urls).map(([name, url]) => row(name, url))]
  if (urls['api']) lines.push('', ...demoKeys.map(({ environment, apiKey }) => row(`demo ${environment} key`, apiKey)))
  const live = demoKeys.find(({ environment }) => environment === 'live')
  if (urls['api'] && settings && live) {
    lines.push(
      '',
      'Generate a picture and watch it arrive in the console:',
      '',
      `  curl -s ${urls['api']}/v1/models/${demoModel} \\`,
      `    -H 'Authorization: Bearer ${live.apiKey}' -H 'Content-Type: application/json' \\`,
      `    -d '{"input":{"prompt":"a lighthouse at dusk"},"webhook_url":"${settings.webhookPublicUrl}"}'`,
    )
  }
  return `${lines.join('\n')}\n\nCtrl-C stops all of it. The data stays${isEmbedded ? ' in .data/' : ''}\n\n`
}

const demoModel = 'aurora-image'

function row(name: string, value: string): string {
  return `  ${name.padEnd(18)} ${value}`
}
