//! The command line, without servers.

use crate::support::command::{run, run_files, run_with};
use crate::support::{Connector, Worker};

fn good() -> Connector {
    Connector::new(
        "shop",
        &[
            ("database.hostname", "localhost"),
            ("database.user", "walpost"),
            ("database.password", "planted-database-password"),
            ("database.dbname", "shop"),
            ("table.include.list", "public.outbox"),
        ],
    )
}

fn worker() -> Worker {
    Worker::new(&[
        ("bootstrap.servers", "localhost:9092"),
        ("offset.storage.topic", "connect-offsets"),
    ])
}

#[test]
fn help_teaches_commands_and_exit_codes() {
    let help = run(&["--help"]).expect(0);
    for word in [
        "run",
        "check",
        "validate",
        "offsets",
        "config",
        "Exit codes",
        "SIGTERM",
    ] {
        let detail = run(&["run", "--help"]).expect(0);
        assert!(
            help.stdout.contains(word) || detail.stdout.contains(word),
            "{word}"
        );
    }
    run(&["--version"])
        .expect(0)
        .says(&[env!("CARGO_PKG_VERSION")]);
    run(&["fly"]).expect(2);
    run(&["run"]).expect(2);
}

#[test]
fn a_good_file_is_valid_without_any_server() {
    run_files(&["validate"], &worker(), &[&good()]).expect(0);
}

/// All problems at once, each with property, allowed values or the nearest known name.
#[test]
fn every_problem_is_named_at_once() {
    let bad = good()
        .without("database.dbname")
        .set("slot.name", "Outbox-1")
        .set("snapshot.mode", "sometimes")
        .set("status.update.interval.ms", "soon")
        .set("table.include.lost", "x")
        .set("transforms", "outbox")
        .set(
            "transforms.outbox.type",
            "io.debezium.transforms.outbox.EventRouter",
        )
        .router("route.topic.regex", "(")
        .router("table.fields.additional.placement", "a:heder")
        .router("route.topic.replacment", "x");
    run_files(&["validate"], &worker(), &[&bad])
        .expect(2)
        .says(&[
            "database.dbname",
            "slot.name",
            "Outbox-1",
            "snapshot.mode",
            "initial_only",
            "status.update.interval.ms",
            "table.include.list",
            "route.topic.regex",
            "heder",
            "route.topic.replacement",
        ]);
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_is_opened() {
    let refuse = |worker: &Worker, connectors: &[&Connector], says: &[&str]| {
        run_files(&["validate"], worker, connectors)
            .expect(2)
            .says(says);
    };
    let twin = good().named("twin").set("topic.prefix", "other");
    let (one, two) = (
        good().set("slot.name", "same"),
        twin.set("slot.name", "same"),
    );
    refuse(&worker(), &[&one, &two], &["slot.name"]);
    let both = worker().set("offset.storage.file.filename", "/tmp/offsets");
    refuse(
        &both,
        &[&good()],
        &["offset.storage.topic", "offset.storage.file.filename"],
    );
    let converter = good().set("value.converter", "io.confluent.connect.avro.AvroConverter");
    refuse(&worker(), &[&converter], &["AvroConverter"]);
    let unordered = good().set("producer.override.acks", "1");
    refuse(&worker(), &[&unordered], &["acks"]);
}

#[test]
fn files_of_every_shape_are_read() {
    let folder = crate::support::cleanup::folder("shapes");
    let lines = [
        "name=shop",
        "bootstrap.servers=localhost:9092",
        "database.hostname=localhost",
        "database.user=walpost",
        "database.password=${env:DB_PASSWORD}",
        "database.dbname=shop",
        "table.include.list=public.outbox",
    ];
    let properties = folder.join("shop.properties");
    std::fs::write(&properties, lines.join("\n")).unwrap();
    let members: Vec<String> = lines
        .iter()
        .map(|line| line.split_once('=').unwrap())
        .map(|(name, value)| format!("\"{name}\": \"{value}\""))
        .collect();
    let flat = folder.join("shop.json");
    std::fs::write(&flat, format!("{{{}}}", members.join(","))).unwrap();
    for file in [&properties, &flat] {
        let arguments = ["validate", file.to_str().unwrap()];
        let awkward = "p@ss:w/o?r#d%20 '\"\\&=+ü€ $HOME";
        run_with(&arguments, &[("DB_PASSWORD", awkward)]).expect(0);
        run(&arguments).expect(2).says(&["DB_PASSWORD"]);
    }
}

#[test]
fn a_file_that_is_not_there_or_not_json_is_named() {
    run(&["validate", "/nowhere/shop.json"])
        .expect(2)
        .says(&["/nowhere/shop.json"]);
    let broken = crate::support::cleanup::folder("broken").join("broken.json");
    std::fs::write(&broken, "{\"name\": ").unwrap();
    run(&["validate", broken.to_str().unwrap()])
        .expect(2)
        .says(&["broken.json"]);
}

#[test]
fn the_property_reference_is_printed_in_both_forms() {
    let markdown = run(&["config"]).expect(0);
    assert!(markdown.stdout.contains("table.field.event.key"));
    let json: serde_json::Value =
        serde_json::from_str(&run(&["config", "--format", "json"]).expect(0).stdout).unwrap();
    assert!(json.is_array() || json.is_object());
}

/// `docs/configuration.md` is the printed reference and nothing else.
#[test]
fn the_documented_reference_is_the_printed_one() {
    let path = format!("{}/docs/configuration.md", env!("CARGO_MANIFEST_DIR"));
    let written = std::fs::read_to_string(&path).expect("docs/configuration.md");
    assert_eq!(
        run(&["config"]).expect(0).stdout,
        written,
        "make it anew: walpost config > docs/configuration.md"
    );
}
