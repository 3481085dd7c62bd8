/** A table or a view of a schema, as far as its types say what columns it has. */
export type Described = { _: { columns: object } } | { _: { selectedFields: object } }

type ColumnsOf<T extends Described> = T extends { _: { columns: infer C } }
  ? C
  : T extends { _: { selectedFields: infer C } }
    ? C
    : never

/** The columns by their names in Postgres, where the schema has them by those of the code. */
type ByName<T extends Described> = { [K in keyof ColumnsOf<T> as NameIn<ColumnsOf<T>[K]>]: ColumnsOf<T>[K] }

type NameIn<C> = C extends { _: { name: infer N extends string } } ? N : never

/** What the columns of a table are called in Postgres. */
export type ColumnName<T extends Described> = keyof ByName<T> & string

/**
 * What `execute` gives for these columns, by their names in Postgres. It is what
 * the driver makes of them, not drizzle's builder: times, bigint and numeric are
 * text, bytea is a Buffer, JSON is parsed. A column that the schema does not
 * have, or has by another name, does not compile.
 */
export type RowOf<T extends Described, K extends ColumnName<T>> = { [N in K]: Driven<ByName<T>[N]> }

type Driven<C> = C extends { _: { notNull: infer NotNull } } ? Value<C> | (NotNull extends true ? never : null) : never

type Value<C> = C extends { _: { columnType: infer Type; data: infer Data } }
  ? Type extends 'PgTimestamp' | 'PgBigInt53' | 'PgBigSerial53' | 'PgNumeric'
    ? string
    : C extends { _: { columnType: 'PgArray'; baseColumn: infer Element } }
      ? Value<Element>[]
      : Data
  : never
