//! What the rows look like and what becomes of them.

/// One kind of outbox, with the connector properties that belong to it.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Columns of the table.
    columns: &'static str,
    /// The values of row `n`, in SQL.
    values: &'static str,
    /// Properties beside the stage's.
    pub(crate) properties: &'static [(&'static str, &'static str)],
    /// What stands before and after `n` in the record's value.
    pub(crate) proof: (&'static str, &'static str),
}

/// Keys among which the rows go round.
pub(crate) const KEYS: u64 = 1000;

/// About 235 bytes of jsonb, printed by Postgres with `n` in front.
macro_rules! payload {
    () => {
        r#"format('{"n": %s, "sku": "A-%s", "note": "%s", "total": 129.90, "status": "placed", "currency": "EUR", "customer": "c-%s"}', n, n % 977, repeat('an ordinary note, ', 7), n % 40009)"#
    };
}

/// The columns that the router wants. The id carries `n`, so that every record tells its row.
macro_rules! usual {
    () => {
        "('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'k' || n % 1000, 'OrderPlaced'"
    };
}

macro_rules! usual_columns {
    () => {
        "id uuid primary key, aggregatetype text not null, aggregateid text not null, type text not null"
    };
}

const JSON: (&str, &str) = (
    "value.converter",
    "org.apache.kafka.connect.json.JsonConverter",
);

/// jsonb as text, string key: the router's defaults.
pub(crate) const PLAIN: Workload = Workload {
    name: "plain",
    columns: concat!(usual_columns!(), ", payload jsonb"),
    values: concat!(usual!(), ", ", payload!(), "::jsonb"),
    properties: &[],
    proof: ("{\"n\": ", ","),
};

/// The other ways a row becomes a record.
pub(crate) const FORMATS: [Workload; 3] = [
    Workload {
        name: "JsonConverter with schemas",
        columns: concat!(usual_columns!(), ", payload jsonb"),
        values: concat!(usual!(), ", ", payload!(), "::jsonb"),
        properties: &[JSON, ("value.converter.schemas.enable", "true")],
        proof: ("{\\\"n\\\": ", ","),
    },
    Workload {
        name: "expanded payload",
        columns: concat!(usual_columns!(), ", payload jsonb"),
        values: concat!(usual!(), ", ", payload!(), "::jsonb"),
        properties: &[
            JSON,
            ("value.converter.schemas.enable", "false"),
            ("transforms.outbox.table.expand.json.payload", "true"),
        ],
        proof: ("\"n\":", ","),
    },
    Workload {
        name: "20 mixed columns",
        columns: concat!(
            usual_columns!(),
            ", payload jsonb, c1 smallint, c2 int, c3 bigint, c4 numeric(12,2), c5 boolean, ",
            "c6 text, c7 varchar(40), c8 timestamptz, c9 timestamp, c10 date, c11 time, ",
            "c12 uuid, c13 jsonb, c14 bytea, c15 double precision"
        ),
        values: concat!(
            usual!(),
            ", ",
            payload!(),
            "::jsonb, (n % 30000)::smallint, n::int, n, n / 100.0, n % 2 = 0, 'text ' || n, ",
            "'varchar ' || n, 'epoch'::timestamptz + n * interval '1 second', ",
            "'epoch'::timestamp + n * interval '1 second', date '2026-01-01' + (n % 365)::int, ",
            "time '08:00' + (n % 3600) * interval '1 second', ",
            "'00000000-0000-4000-8000-000000000001'::uuid, '{\"a\": [1, 2, 3]}'::jsonb, ",
            "decode('0102030405', 'hex'), n * 1.5"
        ),
        properties: &[
            JSON,
            ("value.converter.schemas.enable", "true"),
            (
                "transforms.outbox.table.fields.additional.placement",
                "type:header:eventType,c1:envelope,c2:envelope,c3:envelope,c4:envelope,\
                 c5:envelope,c6:envelope,c7:envelope,c8:envelope,c9:envelope,c10:envelope,\
                 c11:envelope,c12:envelope,c13:envelope,c14:envelope,c15:envelope",
            ),
        ],
        proof: ("{\\\"n\\\": ", ","),
    },
];

impl Workload {
    /// Creates the table afresh.
    pub(crate) fn create(&self) -> String {
        format!(
            "drop table if exists outbox cascade; create table outbox ({});",
            self.columns
        )
    }

    /// Writes rows `1..=rows`, `per_transaction` to a transaction.
    pub(crate) fn fill(&self, rows: u64, per_transaction: u64) -> String {
        format!(
            "do $fill$ begin
                for low in 1..{rows} by {per_transaction} loop
                    insert into outbox select {}
                    from generate_series(low, least(low + {per_transaction} - 1, {rows})) n;
                    commit;
                end loop;
            end $fill$",
            self.values
        )
    }

    /// One row, inside the caller's transaction.
    pub(crate) fn one(&self, n: u64) -> String {
        format!(
            "insert into outbox select {} from (values ({n})) row (n)",
            self.values
        )
    }
}
