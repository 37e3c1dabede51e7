#!/usr/bin/env python3
"""Captures the rows of the golden cases, so that the router can be tested without services.

    capture.py PG_BIN_DIR        e.g. capture.py /usr/lib/postgresql/15/bin

    capture.py PG_BIN_DIR own    only the cases of our own

Starts a throw-away Postgres in a temporary folder (as user postgres when run by root), runs the SQL
of each case in a database of its own, and writes beside itself rows.jsonl (of cases.jsonl) and
own-rows.jsonl (of own.jsonl): one line a case, with what the replication stream and the snapshot would hand to the router. Elements of `events`:

    {"relation": {...}}           a table is described, with the catalog's facts of that moment
    {"begin": [xid, time_us]}     a transaction; what follows belongs to it
    {"insert": [oid, row]}        a row: strings, null for NULL, false for a value not sent
    {"read": [oid, row]}          a row of the snapshot
    {"update": [oid, old, new]}   old is null when it was not sent
    {"delete": oid}, {"truncate": [oid, ...]}
    {"message": [transactional, prefix, base64 content]}

Only needed again when cases are added.
"""

import base64
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

FILES = [("cases.jsonl", "rows.jsonl"), ("own.jsonl", "own-rows.jsonl")]
HERE = pathlib.Path(__file__).parent
SESSION = [
    "SET datestyle = 'ISO, MDY'",
    "SET intervalstyle = postgres",
    "SET extra_float_digits = 3",
    "SET bytea_output = hex",
    "SET timezone = 'UTC'",
]
EPOCH_2000_US = 946_684_800_000_000


class Connection:
    """The simple query protocol over a Unix socket, no more of it than is needed here."""

    def __init__(self, folder, port, database):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(f"{folder}/.s.PGSQL.{port}")
        self.buffer = b""
        options = f"user\0postgres\0database\0{database}\0client_encoding\0UTF8\0\0".encode()
        self.socket.sendall(struct.pack("!II", len(options) + 8, 196608) + options)
        self.answers("start-up")

    def message(self):
        while len(self.buffer) < 5 or len(self.buffer) < 1 + struct.unpack_from("!I", self.buffer, 1)[0]:
            received = self.socket.recv(1 << 20)
            if not received:
                raise EOFError("the server closed the connection")
            self.buffer += received
        length = struct.unpack_from("!I", self.buffer, 1)[0]
        kind, body = self.buffer[:1], self.buffer[5 : 1 + length]
        self.buffer = self.buffer[1 + length :]
        return kind, body

    def answers(self, what, copy=None):
        rows, error = [], None
        while True:
            kind, body = self.message()
            if kind == b"D":
                row, at = [], 2
                for _ in range(struct.unpack_from("!H", body)[0]):
                    (length,) = struct.unpack_from("!i", body, at)
                    at += 4
                    row.append(None if length < 0 else body[at : at + length].decode())
                    at += max(length, 0)
                rows.append(row)
            elif kind == b"G":
                data = (copy or "").encode()
                self.socket.sendall(b"d" + struct.pack("!I", len(data) + 4) + data + b"c\0\0\0\4")
            elif kind == b"E":
                error = body
            elif kind == b"Z":
                if error:
                    raise RuntimeError(f"{what}: {error!r}")
                return rows

    def query(self, sql, copy=None):
        data = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!I", len(data) + 4) + data)
        return self.answers(sql[:200], copy)


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


class Reader:
    """Takes pgoutput's messages apart."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("!" + form, self.data, self.at)
        self.at += struct.calcsize("!" + form)
        return values if len(values) > 1 else values[0]

    def text(self):
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode()
        self.at = end + 1
        return text

    def row(self):
        cells = []
        for _ in range(self.take("H")):
            kind = self.take("c")
            if kind == b"n":
                cells.append(None)
            elif kind == b"u":
                cells.append(False)
            else:
                length = self.take("I")
                cells.append(self.data[self.at : self.at + length].decode())
                self.at += length
        return cells


class Catalog:
    def __init__(self, connection):
        self.query = connection.query
        self.types = {}

    def type(self, oid):
        """[oid, schema, name, kind, more]"""
        if oid in self.types:
            return self.types[oid]
        schema, name, kind, base, modifier, element, category = self.query(
            "SELECT n.nspname, t.typname, t.typtype, t.typbasetype, t.typtypmod, t.typelem, t.typcategory"
            f" FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = {oid}"
        )[0]
        if kind == "d":
            more = ["domain", self.type(int(base)), int(modifier)]
        elif kind == "e":
            labels = self.query(
                f"SELECT enumlabel FROM pg_enum WHERE enumtypid = {oid} ORDER BY enumsortorder"
            )
            more = ["enum", [label for (label,) in labels]]
        elif category == "A" and element != "0":
            more = ["array", self.type(int(element))]
        else:
            more = [{"b": "base", "c": "composite", "r": "range", "m": "multirange", "p": "pseudo"}[kind]]
        self.types[oid] = [oid, schema, name, *more]
        return self.types[oid]

    def facts(self, oid, columns):
        index = self.query(
            f"SELECT indkey FROM pg_index WHERE indrelid = {oid} AND (indisprimary OR indisunique)"
            " AND indpred IS NULL AND indexprs IS NULL ORDER BY NOT indisprimary, indexrelid LIMIT 1"
        )
        key = index[0][0].split() if index else []
        facts = []
        for name, type_oid in columns:
            found = self.query(
                "SELECT a.attnum, a.attnotnull, pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a"
                " LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''"
                f" WHERE a.attrelid = {oid} AND a.attname = {quoted(name)} AND NOT a.attisdropped"
            )
            number, not_null, default = found[0] if found else (None, "f", None)
            place = key.index(number) if number in key else False
            facts.append([self.type(type_oid), not_null == "t", place, default])
        return facts

    def relation(self, oid):
        schema, table, identity = self.query(
            "SELECT n.nspname, c.relname, c.relreplident FROM pg_class c"
            f" JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {oid}"
        )[0]
        columns = [
            [name, False, int(type_oid), int(modifier)]
            for name, type_oid, modifier in self.query(
                "SELECT attname, atttypid, atttypmod FROM pg_attribute"
                f" WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
            )
        ]
        return self.describe(oid, schema, table, identity, columns)

    def describe(self, oid, schema, table, identity, columns):
        facts = self.facts(oid, [(column[0], column[2]) for column in columns])
        return {"relation": {"oid": oid, "schema": schema, "table": table, "identity": identity,
                             "columns": columns, "facts": facts}}


def decode(data, catalog):
    reader = Reader(data)
    kind = reader.take("c")
    if kind == b"B":
        _, time, xid = reader.take("QqI")
        yield {"begin": [xid, time + EPOCH_2000_US]}
    elif kind == b"R":
        oid = reader.take("I")
        schema, table = reader.text(), reader.text()
        identity = reader.take("c").decode()
        columns = []
        for _ in range(reader.take("H")):
            flags = reader.take("B")
            name = reader.text()
            columns.append([name, bool(flags & 1), *reader.take("Ii")])
        yield catalog.describe(oid, schema, table, identity, columns)
    elif kind == b"I":
        oid, _ = reader.take("Ic")
        yield {"insert": [oid, reader.row()]}
    elif kind == b"U":
        oid, tag = reader.take("Ic")
        old = None
        if tag in b"KO":
            old = reader.row()
            reader.take("c")
        yield {"update": [oid, old, reader.row()]}
    elif kind == b"D":
        yield {"delete": reader.take("I")}
    elif kind == b"T":
        count, _ = reader.take("IB")
        yield {"truncate": [reader.take("I") for _ in range(count)]}
    elif kind == b"M":
        flags, _ = reader.take("BQ")
        prefix = reader.text()
        length = reader.take("I")
        content = reader.data[reader.at : reader.at + length]
        yield {"message": [bool(flags & 1), prefix, base64.b64encode(content).decode()]}


def included(config, schema, table):
    def matches(name, text):
        return any(re.fullmatch(p.strip(), text, re.I) for p in config[name].split(","))

    path = f"{schema}.{table}"
    return (
        ("schema.include.list" not in config or matches("schema.include.list", schema))
        and ("table.include.list" not in config or matches("table.include.list", path))
        and ("table.exclude.list" not in config or not matches("table.exclude.list", path))
    )


class Case:
    def __init__(self, case, folder, port, database):
        self.case, self.config = case, case["config"]
        self.connect = lambda: Connection(folder, port, database)
        self.sessions = {"main": self.connect()}
        self.reader = self.connect()
        for setting in SESSION:
            self.reader.query(setting)
        self.events = []

    def run(self, element):
        if isinstance(element, str):
            element = {"session": "main", "sql": element}
        session = element.get("session", "main")
        if session not in self.sessions:
            self.sessions[session] = self.connect()
        self.sessions[session].query(element["sql"], element.get("copy"))

    def tables(self):
        found = self.reader.query(
            "SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^(pg_|information_schema)' ORDER BY 2, 3"
        )
        return [(int(oid), s, t) for oid, s, t in found if self.table_is_ours(s, t)]

    def table_is_ours(self, schema, table):
        try:
            return included(self.config, schema, table)
        except re.error:
            return False

    def publish(self):
        """What the program would create; nothing where it only captures."""
        mode = self.config.get("publication.autocreate.mode")
        root = " WITH (publish_via_partition_root = true)" if self.config.get("publish.via.partition.root") == "true" else ""
        partitions = {r[0] for r in self.reader.query("SELECT inhrelid FROM pg_inherits")} if root else set()
        names = ", ".join(f'"{s}"."{t}"' for oid, s, t in self.tables() if str(oid) not in partitions)
        exists = self.reader.query("SELECT 1 FROM pg_publication WHERE pubname = 'p_outbox'")
        if mode == "filtered" and exists:
            self.reader.query(f"ALTER PUBLICATION p_outbox SET TABLE {names}")
        elif exists:
            pass
        elif mode in ("filtered", "all_tables"):
            self.reader.query(f"CREATE PUBLICATION p_outbox FOR TABLE {names}{root}")
        else:
            self.reader.query("CREATE PUBLICATION p_outbox")

    def create_slot(self):
        self.reader.query("SELECT pg_create_logical_replication_slot('golden', 'pgoutput')")

    def snapshot(self):
        catalog = Catalog(self.reader)
        for oid, schema, table in self.tables():
            self.events.append(catalog.relation(oid))
            columns = [column[0] for column in self.events[-1]["relation"]["columns"]]
            select = self.config.get(f"snapshot.select.statement.overrides.{schema}.{table}")
            select = select or f'SELECT * FROM "{schema}"."{table}"'
            cells = ", ".join('"{}"'.format(name.replace('"', '""')) for name in columns)
            for row in self.reader.query(f"SELECT {cells} FROM ({select}) s"):
                self.events.append({"read": [oid, row]})

    def stream(self):
        catalog = Catalog(self.reader)
        # A message outside transactions may lie unflushed, where decoding does not see it.
        self.reader.query("CHECKPOINT")
        changes = self.reader.query(
            "SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('golden', NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'p_outbox', 'messages', 'true')"
        )
        known = {json.dumps(e["relation"]) for e in self.events if "relation" in e}
        for (data,) in changes:
            for event in decode(bytes.fromhex(data), catalog):
                # Each call describes every table again; the stream does so only after a change.
                if "relation" in event and json.dumps(event["relation"]) in known and self.last(event):
                    continue
                self.events.append(event)
        # A transaction without rows of ours is of no interest.
        kept = []
        for event in self.events:
            if kept and "begin" in event and "begin" in kept[-1]:
                kept.pop()
            kept.append(event)
        self.events = kept

    def last(self, event):
        oid = event["relation"]["oid"]
        same = [e for e in self.events if "relation" in e and e["relation"]["oid"] == oid]
        return same and same[-1] == event

    def capture(self):
        for element in self.case["setup"]:
            self.run(element)
        if not self.case["slot"]:
            self.publish()
        self.create_slot()
        for element in self.case.get("before") or []:
            self.run(element)
        if not self.case["slot"]:
            mode = self.config.get("snapshot.mode", "initial")
            if mode not in ("no_data", "never"):
                self.snapshot()
        else:
            self.publish()
            self.stream()
        for step in self.case["steps"]:
            for element in step["sql"]:
                self.run(element)
            if self.config.get("snapshot.mode") != "initial_only":
                self.stream()
        return {"name": self.case["name"], "events": self.events}

    def close(self):
        self.reader.query("SELECT pg_drop_replication_slot('golden')")
        for connection in [self.reader, *self.sessions.values()]:
            connection.socket.close()


def as_postgres(command):
    return ["runuser", "-u", "postgres", "--", *command] if os.getuid() == 0 else command


def main(bin_dir, files):
    folder = tempfile.mkdtemp(prefix="golden-")
    os.chmod(folder, 0o777)
    data, port = f"{folder}/data", 54321  # a Unix socket in our own folder, so any port is free
    run = lambda *command: subprocess.run(as_postgres(list(command)), check=True, stdout=subprocess.DEVNULL)
    run(f"{bin_dir}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
    options = (f"-c listen_addresses='' -c unix_socket_directories='{folder}' -p {port} -c fsync=off"
               " -c wal_level=logical -c max_prepared_transactions=10 -c max_connections=20")
    run(f"{bin_dir}/pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
    try:
        admin = Connection(folder, port, "postgres")
        for cases_name, rows_name in files:
            with open(HERE / cases_name) as cases, open(HERE / rows_name, "w") as rows:
                for number, line in enumerate(cases):
                    database = f"case_{number}"
                    admin.query(f"CREATE DATABASE {database}")
                    case = Case(json.loads(line), folder, port, database)
                    captured = case.capture()
                    case.close()
                    rows.write(json.dumps(captured, ensure_ascii=False, separators=(",", ":")) + "\n")
                    admin.query(f"DROP DATABASE {database} WITH (FORCE)")
    finally:
        run(f"{bin_dir}/pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], FILES[1:] if sys.argv[2:] == ["own"] else FILES)
