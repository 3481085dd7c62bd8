/** A table or a view of a schema. Its columns have the same names as in Postgres. */
export type Described = { _: { columns: object } } | { _: { selectedFields: object } }

type ColumnsOf<T extends Described> = T extends { _: { columns: infer C } }
  ? C
  : T extends { _: { selectedFields: infer C } }
    ? C
    : never

export type ColumnName<T extends Described> = keyof ColumnsOf<T> & string

/** The rows that `execute` returns: times, bigint and numeric are text, bytea is a Buffer, JSON is parsed. */
export type RowOf<T extends Described, K extends ColumnName<T>> = { [N in K]: Driven<ColumnsOf<T>[N]> }

type Driven<C> = C extends { _: { notNull: infer NotNull } } ? Value<C> | (NotNull extends true ? never : null) : never

type Value<C> = C extends { _: { columnType: infer Type; data: infer Data } }
  ? Type extends 'PgBigInt53' | 'PgBigSerial53' | 'PgNumeric'
    ? string
    : C extends { _: { columnType: 'PgArray'; baseColumn: infer Element } }
      ? Value<Element>[]
      : Data
  : never
