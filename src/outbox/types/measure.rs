//! Length and scale of a column as pgjdbc reports them, which Debezium builds its schemas on.

use crate::source::row::{PgType, PgTypeKind};

/// pgjdbc's length of a type that has none.
const UNKNOWN_LENGTH: i32 = i32::MAX;
/// pgjdbc's length of a numeric without precision.
const NUMERIC_LENGTH: i32 = 131_089;
/// Type modifier of a type that has none.
const NO_MODIFIER: i32 = -1;

/// Length and scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::outbox) struct Measure {
    pub(in crate::outbox) length: i32,
    pub(in crate::outbox) scale: i32,
}

impl Measure {
    /// Of a column of this type.
    pub(in crate::outbox) fn of(pg_type: &PgType, modifier: i32) -> Self {
        if modifier != NO_MODIFIER {
            let name = measured_name(pg_type);
            return Self {
                length: precision(name, modifier),
                scale: scale(name, modifier),
            };
        }
        match &pg_type.kind {
            PgTypeKind::Domain(parent, NO_MODIFIER) => Self::of(parent, NO_MODIFIER),
            PgTypeKind::Domain(parent, modifier) => {
                let name = measured_name(parent);
                let length = match precision(name, *modifier) {
                    0 => display_size(name, *modifier),
                    length => length,
                };
                Self {
                    length,
                    scale: scale(name, *modifier),
                }
            }
            _ => {
                let name = measured_name(pg_type);
                let length = match precision(name, NO_MODIFIER) {
                    0 => display_size(name, NO_MODIFIER),
                    length => length,
                };
                Self {
                    length,
                    scale: scale(name, NO_MODIFIER),
                }
            }
        }
    }

    /// Whether a numeric of this measure carries the scale in each value.
    pub(in crate::outbox) fn is_variable(self) -> bool {
        (self.length == 0 || self.length == NUMERIC_LENGTH) && self.scale == 0
    }
}

/// The type under all domains.
pub(in crate::outbox) fn root(pg_type: &PgType) -> &PgType {
    match &pg_type.kind {
        PgTypeKind::Domain(parent, _) => root(parent),
        _ => pg_type,
    }
}

/// An array is measured as its element is; only built-in types have a measure.
fn measured_name(pg_type: &PgType) -> &str {
    match &pg_type.kind {
        PgTypeKind::Array(element) => measured_name(element),
        PgTypeKind::Base if pg_type.schema == "pg_catalog" => &pg_type.name,
        _ => "",
    }
}

fn precision(name: &str, modifier: i32) -> i32 {
    match name {
        "int2" => 5,
        "int4" | "oid" => 10,
        "int8" => 19,
        "float4" => 8,
        "float8" => 17,
        "numeric" if modifier == NO_MODIFIER => 0,
        "numeric" => (modifier - 4) >> 16,
        "char" | "bool" => 1,
        "bpchar" | "varchar" if modifier != NO_MODIFIER => modifier - 4,
        "date" | "time" | "timetz" | "interval" | "timestamp" | "timestamptz" => {
            display_size(name, modifier)
        }
        "bit" => modifier,
        "varbit" if modifier != NO_MODIFIER => modifier,
        _ => UNKNOWN_LENGTH,
    }
}

fn scale(name: &str, modifier: i32) -> i32 {
    match name {
        "float4" => 8,
        "float8" => 17,
        "numeric" if modifier != NO_MODIFIER => (modifier - 4) & 0xFFFF,
        "time" | "timetz" | "timestamp" | "timestamptz" if modifier != NO_MODIFIER => modifier,
        "interval" if modifier != NO_MODIFIER => modifier & 0xFFFF,
        "time" | "timetz" | "timestamp" | "timestamptz" | "interval" => 6,
        _ => 0,
    }
}

fn display_size(name: &str, modifier: i32) -> i32 {
    let fraction = match modifier {
        NO_MODIFIER => 7,
        0 => 0,
        1 => 3,
        digits => digits + 1,
    };
    match name {
        "date" => 13,
        "time" => 8 + fraction,
        "timetz" => 14 + fraction,
        "timestamp" => 22 + fraction,
        "timestamptz" => 28 + fraction,
        "interval" => 49,
        "numeric" if modifier == NO_MODIFIER => NUMERIC_LENGTH,
        "numeric" => {
            let point = i32::from((modifier - 4) & 0xFFFF != 0);
            1 + ((modifier - 4) >> 16) + point
        }
        _ => UNKNOWN_LENGTH,
    }
}
