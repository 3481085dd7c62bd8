import type { SettingProblem } from '../platform/settings.ts'

/** Lists every invalid setting at once. The process ends with exit code 78 (EX_CONFIG). */
export class ConfigError extends Error {
  override name = 'ConfigError'
  code = 'config' as const
  constructor(problems: readonly SettingProblem[]) {
    super(['invalid settings:', ...problems.map(({ name, message }) => `  ${name} ${message}`)].join('\n'))
  }
}
