//! The kit itself: what the other tests rely on.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::support::postgres::Shutdown;
use crate::support::relay::Weather;
use crate::support::tls::Authority;
use crate::support::{Kafka, Postgres, Relay, Scene, Tail, kafka, ports};

#[test]
fn a_server_of_our_own_stops_and_starts_with_its_data() {
    let server = Postgres::private(&[]);
    server
        .connect("postgres")
        .batch_execute("create table kept (n int); insert into kept values (1)")
        .unwrap();
    server.restart(Shutdown::Immediate);
    let row = server
        .connect("postgres")
        .query_one("select n from kept", &[]);
    assert_eq!(row.unwrap().get::<_, i32>(0), 1);
    assert!(server.major() >= 14);
}

#[test]
fn records_written_are_records_read() {
    let scene = Scene::new("kit");
    let topic = scene.topic("order");
    let mut tail = Tail::new(&scene.kafka.bootstrap(), &[&topic]);
    assert!(tail.now().is_empty());
    scene.kafka.create_topic(&topic, 3, &[]);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", scene.kafka.bootstrap())
        .create()
        .unwrap();
    for n in 0..10 {
        let (key, value) = (n.to_string(), format!("{{\"n\":{n}}}"));
        producer
            .send(
                BaseRecord::to(&topic)
                    .key(&key)
                    .payload(&value)
                    .timestamp(n),
            )
            .unwrap();
    }
    producer.flush(Duration::from_secs(30)).unwrap();
    let records = tail.exactly(10, Duration::from_millis(100)).to_vec();
    assert_eq!(scene.records("order").len(), 10);
    let four = records
        .iter()
        .find(|record| record.key_text() == "4")
        .unwrap();
    assert_eq!(
        (four.json()["n"].as_i64(), four.timestamp),
        (Some(4), Some(4))
    );
}

#[test]
fn a_secured_cluster_lets_in_whom_it_knows() {
    let authority = Authority::new();
    let cluster = Kafka::start(&kafka::Options {
        secure: Some(kafka::Secure {
            protocol: "SASL_SSL",
            authority: &authority,
            client_certificates: false,
        }),
        acls: true,
        ..kafka::Options::default()
    });
    cluster.create_topic("closed", 1, &[]);
    cluster.allow(&["--operation", "Describe", "--topic", "closed"]);
    let known = |password: &str| {
        let consumer: rdkafka::consumer::BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", cluster.secure_bootstrap())
            .set("security.protocol", "SASL_SSL")
            .set("sasl.mechanism", "SCRAM-SHA-256")
            .set("sasl.username", kafka::USER)
            .set("sasl.password", password)
            .set("ssl.ca.location", authority.certificate().to_str().unwrap())
            .set("log_level", "0")
            .create()
            .unwrap();
        rdkafka::consumer::Consumer::fetch_metadata(
            &consumer,
            Some("closed"),
            Duration::from_secs(5),
        )
        .is_ok_and(|metadata| metadata.topics()[0].partitions().len() == 1)
    };
    assert!(known(kafka::PASSWORD));
    assert!(!known("wrong"));
}

/// The feature that breaks promises for `make torture-check` leaves no trace in other builds.
#[cfg(not(feature = "sabotage"))]
#[test]
fn a_normal_build_cannot_be_told_to_break_its_promises() {
    let binary = std::fs::read(crate::support::command::binary()).unwrap();
    for needle in ["WALPOST_SABOTAGE", "sabotage"] {
        let found = binary
            .windows(needle.len())
            .any(|part| part == needle.as_bytes());
        assert!(!found, "{needle} is in the binary");
    }
}

#[test]
fn the_relay_stalls_cuts_and_goes_silent() {
    let port = ports::free();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let relay = Relay::to(port);
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        stream
    };
    let echo = |mut stream: &TcpStream| {
        let mut byte = [0];
        stream.write_all(b"x")?;
        stream.read_exact(&mut byte)
    };
    let first = connect();
    assert!(echo(&first).is_ok());
    relay.set(Weather::Stall);
    assert!(echo(&first).is_err(), "stalled");
    relay.set(Weather::Fair);
    let mut late = [0];
    (&first)
        .read_exact(&mut late)
        .expect("stalled bytes come late");
    relay.set(Weather::Delay(Duration::from_millis(30)));
    let sent = Instant::now();
    echo(&first).unwrap();
    assert!(
        sent.elapsed() >= Duration::from_millis(60),
        "both ways delayed"
    );
    relay.set(Weather::HalfOpen);
    assert!(echo(&first).is_err(), "silent");
    relay.set(Weather::Fair);
    assert!(echo(&first).is_err(), "silent for ever");
    let second = connect();
    assert!(echo(&second).is_ok(), "new connections are well");
    relay.cut();
    assert_eq!((&second).read(&mut [0]).unwrap_or(0), 0, "closed");
}
