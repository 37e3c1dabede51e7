//! A row and a relation in, a record or a verdict out. No I/O, no clock, no async.
