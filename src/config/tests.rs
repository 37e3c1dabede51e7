//! The loader as a whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::properties::{FAMILIES, Kind, Status};
use super::*;

const PASSWORDS: [(&str, &str); 2] = [("WALPOST_DB_PASSWORD", "p"), ("DEBEZIUM_PASSWORD", "p")];

/// Says how to reach Postgres.
const DATABASE: &str = "database.hostname=h\ndatabase.user=u\ndatabase.dbname=d\n";

fn environment(more: &[(&str, &str)]) -> Vec<(String, String)> {
    PASSWORDS
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Writes files into a folder and loads them; `*.worker` is the worker file.
fn load_texts(files: &[(&str, &str)], more: &[(&str, &str)]) -> Result<Loaded, Vec<Problem>> {
    let folder = tempfile::tempdir().unwrap();
    let mut request = LoadRequest {
        environment: environment(more),
        ..LoadRequest::default()
    };
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        if name.ends_with(".worker") {
            request.worker_file = Some(path);
        } else {
            request.connector_files.push(path);
        }
    }
    load(&request)
}

fn problems(loaded: Result<Loaded, Vec<Problem>>) -> Vec<String> {
    let problems = loaded.err().unwrap_or_default();
    problems
        .iter()
        .map(|problem| {
            let text = problem.to_string();
            let name = problem.origin.rsplit('/').next().unwrap().to_owned();
            text.replacen(&problem.origin, &name, 1)
        })
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let needed = [("name", "c"), ("table.include.list", "public.outbox")];
    needed
        .iter()
        .chain(pairs)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn connector(given: &[(&str, &str)]) -> Connector {
    connector_from_pairs("f", pairs(given), &WorkerPairs::default())
        .unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// The texts of the problems that these properties raise.
fn refusals(given: &[(&str, &str)]) -> Vec<String> {
    let refused = connector_from_pairs("f", pairs(given), &WorkerPairs::default());
    let refused = refused.map(drop).expect_err("accepted");
    refused.iter().map(ToString::to_string).collect()
}

#[test]
fn every_example_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("connector-configs");
    let secrets = tempfile::tempdir().unwrap();
    let secret_file = secrets.path().join("walpost.properties");
    std::fs::write(&secret_file, "db.password=a\nkafka.password=b\n").unwrap();
    let mut loaded = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with("worker.properties") {
            continue;
        }
        // The secrets of the examples lie elsewhere in a test.
        let elsewhere = |path: &Path| -> PathBuf {
            let text = std::fs::read_to_string(path).unwrap();
            let copy = secrets.path().join(path.file_name().unwrap());
            let here = secrets.path().display().to_string();
            std::fs::write(&copy, text.replace("/run/secrets", &here)).unwrap();
            copy
        };
        let worker = match name.as_str() {
            "tls-scram.json" => Some("tls-scram.worker.properties"),
            "debezium-migration.json" => Some("worker.properties"),
            _ => None,
        };
        let request = LoadRequest {
            worker_file: worker.map(|worker| elsewhere(&folder.join(worker))),
            connector_files: vec![elsewhere(&path)],
            environment: environment(&[]),
        };
        if let Err(problems) = load(&request) {
            panic!("{name}: {problems:?}");
        }
        loaded += 1;
    }
    assert!(loaded >= 8, "{loaded}");
}

#[test]
fn the_reference_page_is_the_tables() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let committed = std::fs::read_to_string(page).unwrap_or_default();
    assert!(
        committed == properties::markdown(),
        "write it anew: walpost config --format md > docs/configuration.md"
    );
}

#[test]
fn the_tables_own_defaults_are_valid() {
    for family in FAMILIES {
        for property in family.properties {
            if !property.default.is_empty() && property.status == Status::Works {
                assert_eq!(
                    property.kind.check(property.default),
                    Ok(()),
                    "{}",
                    property.name
                );
            }
            assert!(!property.doc.is_empty(), "{}", property.name);
        }
        let mut names: Vec<&str> = family
            .properties
            .iter()
            .map(|property| property.name)
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), family.properties.len(), "{}", family.title);
    }
}

#[test]
fn a_minimal_file_is_enough() {
    let connector = connector(&[]);
    assert_eq!(connector.topic_prefix, "c");
    assert_eq!(connector.slot.name, "debezium");
    assert_eq!(connector.transforms.len(), 1);
    assert_eq!(connector.converters.value, Converter::String);
    assert_eq!(connector.converters.header, Converter::SimpleHeader);
    assert!(!connector.context_headers && connector.confirm_to_slot);
    assert_eq!(connector.offset_mismatch, OffsetMismatch::Stop);
    assert_eq!(connector.values.converting_failure, FailureMode::Fail);
    assert_eq!(connector.record_time, RecordTime::Commit);
    assert_eq!(
        connector.producer.get("bootstrap.servers"),
        Some("localhost:9092")
    );
    assert_eq!(connector.heartbeat.topic, "__debezium-heartbeat.c");
    assert!(!connector.truncate_events && connector.insert_events);
}

#[test]
fn all_problems_are_told_at_once() {
    let told = refusals(&[
        ("slot.nmae", "x"),
        ("database.port", "0x1"),
        ("provide.transaction.metadata", "true"),
        ("exactly.once.support", "required"),
        ("table.exclude.list", "public.x"),
        ("transforms", "r,x"),
        ("transforms.r.type", "EventRouter"),
        ("transforms.r.route.by.feild", "a"),
        ("transforms.x.type", "io.debezium.transforms.Filter"),
        ("transform.y.type", "EventRouter"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
        ("value.converter.schema.registry.url", "http://x"),
    ]);
    let expected = [
        "f: slot.nmae: no such property; did you mean slot.name?",
        "f: database.port: \"0x1\" is not valid",
        "f: provide.transaction.metadata: \"true\" is refused",
        "f: exactly.once.support: required, but the worker has exactly.once.source.support=disabled",
        "f: table.exclude.list: contradicts table.include.list",
        "f: transforms.r.route.by.feild: no such property; did you mean transforms.r.route.by.field?",
        "f: transforms.x.type: the transform io.debezium.transforms.Filter",
        "f: transform.y.type: no such property",
        "f: value.converter: io.confluent.connect.avro.AvroConverter needs a schema registry",
    ];
    for text in expected {
        assert!(
            told.iter().any(|told| told.starts_with(text)),
            "{text}\n{told:#?}"
        );
    }
    assert_eq!(told.len(), expected.len(), "{told:#?}");
}

#[test]
fn options_of_the_transforms_are_checked_as_connect_checks_them() {
    let told = refusals(&[
        ("transforms", "o,d,e,r"),
        ("transforms.o.type", "EventRouter"),
        ("transforms.d.type", "TimestampRouter"),
        ("transforms.d.timestamp.format", "yyyyTHH"),
        ("transforms.e.type", "ExtractField$Key"),
        ("transforms.e.field.syntax.version", "V2"),
        ("transforms.r.type", "ReplaceField$Value"),
        ("transforms.r.renames", "a:b:,c,d:e:f,g:b"),
    ]);
    for text in [
        "f: transforms.d.timestamp.format: \"yyyyTHH\" is not valid",
        "f: transforms.e.field: is required",
        "f: transforms.e.field.syntax.version: \"V2\" is refused",
        "f: transforms.r.renames: \"c\" is not of the form old:new",
        "f: transforms.r.renames: \"d:e:f\" is not of the form old:new",
        "f: transforms.r.renames: gives the name \"b\" to two fields",
    ] {
        assert!(
            told.iter().any(|told| told.starts_with(text)),
            "{text}\n{told:#?}"
        );
    }
    assert_eq!(told.len(), 6, "{told:#?}");
}

#[test]
fn refused_properties_may_keep_their_default() {
    connector(&[
        ("provide.transaction.metadata", "false"),
        ("exactly.once.support", "requested"),
        ("exactly.once.source.support", "disabled"),
        ("signal.enabled.channels", "source"),
        ("transaction.boundary", "poll"),
        ("errors.deadletterqueue.topic.name", ""),
    ]);
}

#[test]
fn old_names_are_refused_with_the_new_one() {
    let told = refusals(&[
        ("database.server.name", "x"),
        ("transforms", "o"),
        ("transforms.o.type", "EventRouter"),
        (
            "transforms.o.table.fields.additional.error.on.missing",
            "false",
        ),
    ]);
    assert!(told[0].ends_with("did you mean topic.prefix?"), "{told:?}");
    assert!(
        told[1].ends_with("transforms.o.table.field.additional.missing?"),
        "{told:?}"
    );
}

#[test]
fn a_producer_that_could_lose_or_reorder_is_refused() {
    let risky = [
        ("producer.override.acks", "1"),
        ("producer.override.enable.idempotence", "false"),
        (
            "producer.override.max.in.flight.requests.per.connection",
            "6",
        ),
    ];
    assert_eq!(refusals(&risky).len(), 3);
    let mut accepted = risky.to_vec();
    accepted.push(("allow.reordering", "true"));
    assert_eq!(connector(&accepted).producer.get("acks"), Some("1"));
    connector(&[("producer.override.acks", "-1")]);
}

#[test]
fn java_key_stores_are_refused_with_the_command_that_converts_them() {
    let told = refusals(&[("producer.override.ssl.truststore.location", "/x.jks")]);
    assert!(told[0].contains("keytool -exportcert"), "{told:?}");
    connector(&[
        ("producer.override.ssl.truststore.location", "/x.pem"),
        ("producer.override.ssl.truststore.type", "PEM"),
    ]);
}

#[test]
fn workers_lend_security_and_converters_as_connect_does() {
    let worker = "bootstrap.servers=k:9093\nsecurity.protocol=SSL\nssl.truststore.type=PEM\n\
                  ssl.truststore.location=/ca.pem\nproducer.linger.ms=9\n\
                  value.converter=JsonConverter\nvalue.converter.schemas.enable=false\n\
                  key.converter=JsonConverter\nkey.converter.schemas.enable=false\n";
    let file = "table.include.list=public.outbox\nkey.converter=JsonConverter\n\
                database.hostname=h\ndatabase.user=u\ndatabase.dbname=d\nproducer.override.batch.size=5\n";
    let loaded = load_texts(&[("w.worker", worker), ("orders.properties", file)], &[]).unwrap();
    let connector = &loaded.config.connectors[0];
    assert_eq!(connector.name, "orders");
    let producer = &connector.producer;
    assert_eq!(producer.get("security.protocol"), Some("SSL"));
    assert_eq!(producer.get("linger.ms"), Some("9"));
    assert_eq!(producer.get("batch.size"), Some("5"));
    assert_eq!(producer.get("bootstrap.servers"), Some("k:9093"));
    let schemas = |converter: &Converter| match converter {
        Converter::Json(json) => json.schemas,
        other => panic!("{other:?}"),
    };
    assert!(!schemas(&connector.converters.value));
    assert!(
        schemas(&connector.converters.key),
        "options of the worker are not merged"
    );
    assert!(
        loaded
            .notices
            .iter()
            .any(|notice| notice.text.contains("worker's own security"))
    );
    assert_eq!(
        loaded.config.worker.client.get("security.protocol"),
        Some("SSL")
    );
    assert_eq!(loaded.config.worker.client.get("linger.ms"), None);
}

#[test]
fn connector_file_wins_over_worker_file_over_environment() {
    let variables = [
        ("CONNECT_GROUP_ID", "env"),
        ("CONNECT_BOOTSTRAP_SERVERS", "env:1"),
        ("CONNECT_OFFSET_STORAGE_TOPIC", "env-offsets"),
        ("CONNECT_NO_SUCH_THING", "x"),
    ];
    let worker = "group.id=file\nbootstrap.servers=file:1\n";
    let file = r#"{"table.include.list":"public.outbox","bootstrap.servers":"own:1",
        "database.hostname":"h","database.user":"u","database.dbname":"d"}"#;
    let loaded = load_texts(&[("w.worker", worker), ("c.json", file)], &variables).unwrap();
    let worker = &loaded.config.worker;
    assert_eq!(worker.group_id, "file");
    assert_eq!(worker.client.get("bootstrap.servers"), Some("own:1"));
    assert!(matches!(&worker.offsets, OffsetStorage::Topic(topic) if topic.name == "env-offsets"));
    assert_eq!(worker.shutdown_timeout, Duration::from_secs(10));
    assert!(
        loaded
            .notices
            .iter()
            .any(|notice| notice.property.as_deref() == Some("no.such.thing"))
    );
}

#[test]
fn connectors_may_not_disagree_or_share() {
    let base = format!("table.include.list=public.outbox\n{DATABASE}");
    let one = format!("{base}name=a\nslot.name=s\ngroup.id=x\n");
    let two = format!("{base}name=a\nslot.name=s\ngroup.id=y\n");
    let told = problems(load_texts(
        &[("1.properties", &one), ("2.properties", &two)],
        &[],
    ));
    for property in ["group.id", "name", "slot.name"] {
        let start = format!("2.properties: {property}: ");
        assert!(
            told.iter().any(|told| told.starts_with(&start)),
            "{told:#?}"
        );
    }
    let apart = two
        .replace("=a", "=b")
        .replace("=s", "=t")
        .replace("=y", "=x");
    load_texts(&[("1.properties", &one), ("2.properties", &apart)], &[]).unwrap();
}

#[test]
fn the_database_must_be_named() {
    let text = "table.include.list=public.outbox\n";
    let told = problems(load_texts(&[("c.properties", text)], &[]));
    let expected = ["database.hostname", "database.user", "database.dbname"];
    assert_eq!(
        told,
        expected.map(|name| format!("c.properties: {name}: is required"))
    );
}

#[test]
fn half_said_and_doubly_said_settings_are_refused() {
    for bad in [
        vec![("database.sslcert", "/c")],
        vec![("lsn.flush.mode", "manual"), ("flush.lsn.source", "true")],
        vec![("slot.stream.params", "origin=none;streaming=on")],
        vec![("snapshot.select.statement.overrides", "public.outbox")],
        vec![("topic.creation.groups", "a")],
        vec![(
            "connector.class",
            "io.debezium.connector.mysql.MySqlConnector",
        )],
        vec![("plugin.name", "decoderbufs")],
        vec![("topic.naming.strategy", "com.example.Naming")],
        vec![("value.converter", "SimpleHeaderConverter")],
        vec![("producer.override.security.protocol", "SASL_SSL")],
        vec![
            ("producer.override.security.protocol", "SASL_PLAINTEXT"),
            ("producer.override.sasl.mechanism", "PLAIN"),
        ],
    ] {
        assert_eq!(refusals(&bad).len(), 1, "{bad:?}");
    }
    connector(&[("lsn.flush.mode", "manual"), ("flush.lsn.source", "false")]);
    connector(&[("slot.stream.params", "origin=none")]);
}

#[test]
fn kafka_words_are_handed_on_in_one_spelling() {
    let connector = connector(&[
        ("producer.override.security.protocol", " sasl_ssl "),
        ("producer.override.sasl.mechanism", "scram-sha-512"),
        ("producer.override.linger.ms", " 7 "),
        ("producer.override.sasl.jaas.config", " x; "),
        ("producer.override.sticky.partitioning.linger.ms", "3"),
        ("producer.override.max.block.ms", "1"),
    ]);
    let get = |name| connector.producer.get(name);
    assert_eq!(get("security.protocol"), Some("SASL_SSL"));
    assert_eq!(get("linger.ms"), Some("7"));
    assert_eq!(get("sasl.jaas.config"), Some(" x; "));
    assert_eq!(get("sticky.partitioning.linger.ms"), Some("3"));
    assert_eq!(get("max.block.ms"), None);
}

#[test]
fn a_debezium_file_is_told_what_changes_its_meaning() {
    let class = "connector.class=io.debezium.connector.postgresql.PostgresConnector\n";
    let text = format!("table.include.list=public.outbox\n{DATABASE}");
    let told = |text: &str| -> Vec<String> {
        let loaded = load_texts(&[("c.properties", text)], &[]).unwrap();
        loaded
            .notices
            .into_iter()
            .filter_map(|notice| notice.property)
            .collect()
    };
    assert_eq!(told(&text), Vec::<String>::new());
    let told = told(&format!("{text}{class}record.timestamp=commit\n"));
    assert!(
        told.contains(&"offset.mismatch.strategy".to_owned()),
        "{told:?}"
    );
    assert!(!told.contains(&"record.timestamp".to_owned()), "{told:?}");
}

#[test]
fn positions_are_kept_in_one_place() {
    let told = refusals(&[
        ("offset.storage.topic", "t"),
        ("offset.storage.file.filename", "/f"),
    ]);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn placeholders_that_lead_nowhere_are_told_with_their_property() {
    let password = "database.password=${env:NO_SUCH_VARIABLE}\n";
    let text = format!("table.include.list=public.outbox\n{DATABASE}{password}");
    let told = problems(load_texts(&[("c.properties", &text)], &[]));
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("c.properties: database.password: ${env:NO_SUCH_VARIABLE} cannot"),
        "{told:?}"
    );
}

#[test]
fn unreadable_and_broken_files_are_named() {
    let request = LoadRequest {
        connector_files: vec![PathBuf::from("/no/such.json")],
        ..LoadRequest::default()
    };
    assert!(
        load(&request).unwrap_err()[0]
            .to_string()
            .starts_with("/no/such.json: cannot be read")
    );
    let told = problems(load_texts(&[("c.json", "{\"a\": }")], &[]));
    assert!(told[0].starts_with("c.json: is not valid JSON"), "{told:?}");
}

#[test]
fn predicates_are_resolved_and_must_exist() {
    let router = [("transforms", "o"), ("transforms.o.type", "EventRouter")];
    let mut given = router.to_vec();
    given.extend([
        ("transforms.o.predicate", "p"),
        ("transforms.o.negate", "true"),
        ("predicates", "p"),
        ("predicates.p.type", "HasHeaderKey"),
        ("predicates.p.name", "h"),
    ]);
    let predicate = connector(&given).transforms[0].predicate.clone().unwrap();
    assert!(predicate.negate);
    assert!(matches!(predicate.test, PredicateTest::HasHeaderKey(name) if name == "h"));
    for bad in [
        ("transforms.o.predicate", "nope"),
        ("transforms.o.negate", "true"),
    ] {
        let mut given = router.to_vec();
        given.push(bad);
        assert_eq!(refusals(&given).len(), 1);
    }
}

#[test]
fn raw_change_events_are_refused() {
    let told = refusals(&[
        ("transforms", "r"),
        ("transforms.r.type", "RegexRouter"),
        ("transforms.r.regex", "(.*)"),
        ("transforms.r.replacement", "$1"),
    ]);
    assert!(told[0].contains("no Event Router"), "{told:?}");
}

/// Properties whose values are secret, as they stand in a connector's file.
fn secret_names() -> Vec<String> {
    let places = BTreeMap::from([(
        "producer.override.",
        vec!["producer.override.", "producer.", ""],
    )]);
    let mut names = vec!["database.pasword".to_owned(), "sasl.jaas.confg".to_owned()];
    for family in FAMILIES {
        for property in family.properties {
            if property.kind != Kind::Secret {
                continue;
            }
            let name = property.name.replace(['<', '>', '…'], "").replace(' ', ".");
            match places.get(family.prefix) {
                Some(prefixes) => {
                    names.extend(prefixes.iter().map(|prefix| format!("{prefix}{name}")))
                }
                None => names.push(name),
            }
        }
    }
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_secret_is_never_told(index: prop::sample::Index, by_variable: bool, warn: bool, broken: bool) {
        const SECRET: &str = "s3cr3t-marker";
        let names = secret_names();
        let name = index.get(&names);
        let value = if by_variable { "${env:THE_SECRET}" } else { SECRET };
        let extra = if broken { "slot.name=NOT VALID\nno.such=1\n" } else { "" };
        let policy = if warn { "unknown.properties=warn\n" } else { "" };
        let text =
            format!("table.include.list=public.outbox\n{DATABASE}{policy}{extra}{name}={value}\n");
        let variables = [("THE_SECRET", SECRET), ("CONNECT_SASL_JAAS_CONFIG", SECRET)];
        let told = format!("{:?}", load_texts(&[("c.properties", &text)], &variables));
        prop_assert!(!told.contains(SECRET), "{name}: {told}");
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_file_is_loaded_or_refused(bytes: Vec<u8>, text in "([a-z.]{1,12}=[^\n]{0,12}\n){0,6}") {
        let folder = tempfile::tempdir().unwrap();
        for content in [bytes.as_slice(), text.as_bytes()] {
            let path = folder.path().join("c");
            std::fs::write(&path, content).unwrap();
            let request = LoadRequest {
                worker_file: Some(path.clone()),
                connector_files: vec![path],
                environment: Vec::new(),
            };
            let _ = load(&request);
        }
    }

    #[test]
    fn any_value_is_read_or_refused(index: prop::sample::Index, value in ".{0,20}") {
        let names: Vec<String> = FAMILIES
            .iter()
            .flat_map(|family| family.properties.iter().map(move |property| {
                format!("{}{}", family.prefix.replace("<alias>", "o"), property.name)
            }))
            .collect();
        let given = [
            ("transforms", "o"),
            ("transforms.o.type", "EventRouter"),
            (index.get(&names).as_str(), value.as_str()),
        ];
        let _ = connector_from_pairs("f", pairs(&given), &WorkerPairs::default());
    }
}

#[test]
fn hosts_bring_their_ports_or_share_them() {
    let hosts = |pairs: &[(&str, &str)]| -> Vec<String> {
        let connector = connector(pairs);
        let hosts = connector.database.hosts.iter();
        hosts.map(ToString::to_string).collect()
    };
    for (hostname, port, expected) in [
        ("a", "5433", vec!["a:5433"]),
        ("a, b", "5433", vec!["a:5433", "b:5433"]),
        ("a,b", "1,2", vec!["a:1", "b:2"]),
        ("a:7,[::1]", "5433", vec!["a:7", "[::1]:5433"]),
    ] {
        let pairs = [("database.hostname", hostname), ("database.port", port)];
        assert_eq!(hosts(&pairs), expected, "{hostname} {port}");
    }
    let told = refusals(&[("database.hostname", "a,b"), ("database.port", "1,2,3")]);
    assert!(told[0].contains("lists 3 ports for 2 hosts"), "{told:?}");
    let told = refusals(&[("database.hostname", "a:x")]);
    assert!(told[0].contains("database.hostname"), "{told:?}");
}

#[test]
fn several_hosts_ask_for_a_primary_unless_the_file_says_otherwise() {
    let target = |pairs: &[(&str, &str)]| connector(pairs).database.target;
    assert_eq!(target(&[("database.hostname", "a")]), SessionTarget::Any);
    let two = ("database.hostname", "a,b");
    assert_eq!(target(&[two]), SessionTarget::Primary);
    let standby = ("database.target.session.attrs", "standby");
    assert_eq!(target(&[two, standby]), SessionTarget::Standby);
}

#[test]
fn the_pause_between_retries_is_the_shorter_of_both_and_never_none() {
    let pause = |given: &[(&str, &str)]| connector(given).errors.max_backoff.as_millis();
    const OURS: &str = "errors.retry.delay.max.ms";
    assert_eq!(pause(&[]), 10_000);
    assert_eq!(pause(&[(OURS, "500")]), 500);
    assert_eq!(pause(&[(OURS, "0")]), 10_000);
    let budget = |text: &str| {
        connector(&[("errors.retry.timeout", text)])
            .errors
            .retry_timeout
    };
    assert_eq!(budget("0"), None);
    assert_eq!(budget("-1"), None);
    assert_eq!(budget("1500").map(|time| time.as_millis()), Some(1500));
}

#[test]
fn an_order_of_dead_letters_needs_their_topic() {
    let order = ("errors.deadletterqueue.order", "aggregate");
    let refused = refusals(&[order]);
    assert!(
        refused[0].contains("errors.deadletterqueue.topic.name"),
        "{refused:?}"
    );
    let topic = ("errors.deadletterqueue.topic.name", "dead");
    let letters = connector(&[order, topic]).errors.dead_letters.unwrap();
    assert!(letters.by_aggregate);
    assert_eq!(letters.audit_topic(), "dead.audit");
    assert_eq!(letters.replication_factor, None);
    assert!(!refusals(&[("errors.deadletterqueue.topic.name", "no topic")]).is_empty());
}
