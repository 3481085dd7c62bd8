import type { SettingProblem } from '../platform/settings.ts'

/** Every wrong setting at once; the process ends with exit code 78 (EX_CONFIG). */
export class ConfigError extends Error {
  override name = 'ConfigError'
  code = 'config' as const
  constructor(problems: readonly SettingProblem[]) {
    super(
      ['the settings do not allow a start:', ...problems.map(({ name, message }) => `  ${name} ${message}`)].join('\n'),
    )
  }
}
