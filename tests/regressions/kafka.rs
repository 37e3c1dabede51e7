//! Kafka's side: limits, topics, rights, outages, tokens.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{start, variant};
use crate::support::command::PAYLOAD_MARKER;
use crate::support::kafka::{self, Options, Secure};
use crate::support::relay::Weather;
use crate::support::surroundings::{self, Hosts};
use crate::support::tls::Authority;
use crate::support::{Kafka, Postgres, Relay, Scene, Tail, Walpost, ports, wait};

const QUIET: Duration = Duration::from_millis(300);

fn wait_for(time: Duration) {
    let end = Instant::now() + time;
    wait::until("a moment", wait::SOON, || Instant::now() >= end);
}

/// The client checks its own limit before compression, and worded it like a broker's error.
#[test]
fn the_limit_that_a_large_record_hits_is_named() {
    let mut scene = Scene::new("size");
    let topic = scene.topic("order");
    let settings = [("max.message.bytes", "20000000")];
    scene.kafka.create_topic(&topic, 1, &settings);
    let mut walpost = scene.start();
    // The default client limit does not undercut the topic's.
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         values ('order', 'k', to_jsonb(repeat('compressible ', 120000)))",
    );
    let mut tail = scene.tail("order");
    assert!(tail.exactly(1, QUIET)[0].value_text().len() > 1_500_000);
    walpost.stop();

    // A limit of the client's own, which the payload meets and the record exceeds.
    let connector = scene
        .connector()
        .set("producer.override.max.request.size", "50000");
    let id = "bad00000-0000-4000-8000-000000000bad";
    scene.sql(&format!(
        "insert into outbox (id, aggregatetype, aggregateid, payload)
         values ('{id}', 'order', 'planted-key', to_jsonb('{PAYLOAD_MARKER}' || repeat('x', 50000 - 17)))"
    ));
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.expect_exit(4, &["max.request.size", "with key and headers", &topic, id]);
}

/// The first records of a hundred new topics at once: metadata spreads late, and what was queued
/// for a topic that was not known yet failed.
#[test]
fn many_new_topics_at_once_lose_nothing() {
    let kafka = Kafka::start(&Options {
        properties: &[("auto.create.topics.enable", "false")],
        ..Options::default()
    });
    let mut scene = Scene::on("topics", Postgres::shared(), kafka);
    let connector = scene
        .connector()
        .set("topic.creation.default.partitions", "2")
        .set("topic.creation.default.replication.factor", "1");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'a' || n % 100, 'k', jsonb_build_object('n', n) from generate_series(0, 299) n order by n",
    );
    let topics: Vec<String> = (0..100).map(|n| scene.topic(&format!("a{n}"))).collect();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let mut tail = Tail::new(&scene.kafka.bootstrap(), &names);
    let records = tail.within(300, Duration::from_secs(120)).to_vec();
    for topic in &topics {
        let of_topic = records.iter().filter(|record| record.topic == *topic);
        let numbers: Vec<i64> = of_topic.map(|r| r.json()["n"].as_i64().unwrap()).collect();
        assert!(
            numbers.len() == 3 && numbers.is_sorted(),
            "{topic}: {numbers:?}"
        );
    }
}

/// A backlog filled the client's queue before its connection was up: "queue full" was fatal, the
/// restart doubled what had been sent, and waiting for room kept a core busy.
#[test]
fn a_full_queue_is_waited_out_without_doubles_and_without_a_busy_loop() {
    let port = ports::free();
    let relay = Relay::to(port);
    let kafka = Kafka::start(&Options {
        behind: Some((port, relay.port())),
        ..Options::default()
    });
    let mut scene = Scene::on("queue", Postgres::shared(), kafka);
    let mut walpost = scene.start();
    walpost.stop();
    // A backlog, a slow way to the broker, the default queue.
    scene.events("order", "k", 1, 30_000);
    relay.set(Weather::Delay(Duration::from_millis(100)));
    let mut walpost = walpost.again();
    let mut tail = scene.tail("order");
    tail.exactly(30_000, QUIET);
    walpost.stop();

    // A queue of four, and a broker that does not answer. With five records of a partition unanswered
    // and another one waiting, the client library's own thread never rests: not what is tested here.
    relay.set(Weather::Fair);
    let connector = scene.connector().set("in.flight.max.records", "4");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    walpost.allow("");
    // The partition is open by then: its first record is acknowledged, and walpost knows.
    scene.events("order", "k", 30_001, 30_001);
    tail.at_least(30_001);
    let position = scene.position();
    scene.wait_confirmed(position);
    relay.set(Weather::Stall);
    scene.events("order", "k", 30_002, 30_500);
    wait::until("the queue is full", wait::SOON, || {
        let metrics = walpost.metrics();
        metrics.get("walpost_queue_fill_ratio", &[]) == Some(1.0)
    });
    let before = walpost.cpu_time();
    wait_for(Duration::from_secs(2));
    let used = walpost.cpu_time() - before;
    assert!(used < Duration::from_millis(400), "{used:?} in two seconds");
    relay.set(Weather::Fair);
    tail.exactly(30_500, QUIET);

    // SIGTERM is heard while waiting.
    relay.set(Weather::Stall);
    scene.events("order", "k", 30_501, 30_600);
    let (code, time) = walpost.terminate();
    assert_eq!(code, Some(0), "{}", walpost.log());
    assert!(time < Duration::from_secs(12), "{time:?}");
    relay.set(Weather::Fair);
}

/// Statically linked clients lacked a codec or an authentication mechanism.
#[test]
fn every_codec_and_mechanism_is_in_this_binary() {
    let mut scene = Scene::new("codecs");
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let connectors =
        codecs.map(|codec| variant(&scene, codec).set("producer.override.compression.type", codec));
    let _walpost = start(&scene, &connectors);
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', 'k', to_jsonb(repeat('x', 2000)) from generate_series(1, 50)",
    );
    for codec in codecs {
        scene.tail(codec).exactly(50, QUIET);
    }
    let said = crate::support::command::run(&["--version"]).expect(0);
    let features = [
        "gzip",
        "snappy",
        "ssl",
        "lz4",
        "zstd",
        "sasl_plain",
        "sasl_scram",
        "oauthbearer",
    ];
    said.says(&features);
    let worker = scene.worker().set("security.protocol", "SASL_SSL");
    for (mechanism, text) in [("GSSAPI", "not built in"), ("MAGIC", "sasl.mechanism")] {
        let worker = worker.clone().set("sasl.mechanism", mechanism);
        let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
        walpost.expect_exit(2, &[mechanism, text]);
    }
}

/// A token endpoint: unsigned tokens that live for seconds, as a broker without a validator of its
/// own takes them.
struct Tokens {
    port: u16,
    given: Arc<AtomicUsize>,
    down: Arc<AtomicBool>,
}

const LIFE_S: u64 = 8;

impl Tokens {
    fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (given, down) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, failing) = (Arc::clone(&given), Arc::clone(&down));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let (status, body) = if failing.load(Ordering::Relaxed) {
                    (
                        "400 Bad Request",
                        "{\"error\":\"planted-answer\"}".to_owned(),
                    )
                } else {
                    count.fetch_add(1, Ordering::Relaxed);
                    (
                        "200 OK",
                        format!(
                            "{{\"access_token\":\"{}\",\"token_type\":\"bearer\",\"expires_in\":{LIFE_S}}}",
                            token()
                        ),
                    )
                };
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Self { port, given, down }
    }
}

fn token() -> String {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let claims = format!(
        "{{\"sub\":\"walpost\",\"iat\":{now},\"exp\":{},\"jti\":\"planted-token\"}}",
        now + LIFE_S
    );
    format!("{}.{}.", encode("{\"alg\":\"none\"}"), encode(&claims))
}

/// Tokens expired while no row came, and the client noticed only when it was used.
#[test]
fn a_token_is_renewed_while_nothing_is_sent() {
    let authority = Authority::new();
    let kafka = Kafka::start(&Options {
        secure: Some(Secure {
            protocol: "SASL_SSL",
            authority: &authority,
            client_certificates: false,
        }),
        properties: &[("connections.max.reauth.ms", "60000")],
        ..Options::default()
    });
    let mut scene = Scene::on("token", Postgres::shared(), kafka);
    let tokens = Tokens::serve();
    let worker = scene
        .worker()
        .over_tls("SASL_SSL", &scene.kafka.secure_bootstrap(), &authority)
        .set("sasl.mechanism", "OAUTHBEARER")
        .set(
            "sasl.oauthbearer.token.endpoint.url",
            &format!("http://127.0.0.1:{}/token", tokens.port),
        )
        .set(
            "sasl.login.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        )
        .set(
            "sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
             clientId=\"walpost\" clientSecret=\"planted-oauth-secret\";",
        );
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let first = tokens.given.load(Ordering::Relaxed);
    wait::until("tokens are renewed while idle", wait::SOON, || {
        tokens.given.load(Ordering::Relaxed) >= first + 2
    });
    scene.event("k", 2);
    scene.tail("order").within(2, Duration::from_secs(10));

    // The endpoint refuses for a while.
    walpost.allow("");
    tokens.down.store(true, Ordering::Relaxed);
    walpost.wait_log("token.endpoint.url");
    tokens.down.store(false, Ordering::Relaxed);
    scene.event("k", 3);
    scene.tail("order").within(3, Duration::from_secs(60));
    assert!(walpost.is_running());
    assert!(!walpost.log().contains("eyJ"), "no token in the log");
}

/// What is refused for want of a right was retried in silence.
#[test]
fn a_right_taken_away_turns_readiness_red_and_its_return_is_enough() {
    let authority = Authority::new();
    let kafka = Kafka::start(&Options {
        secure: Some(Secure {
            protocol: "SASL_SSL",
            authority: &authority,
            client_certificates: false,
        }),
        acls: true,
        ..Options::default()
    });
    let mut scene = Scene::on("revoked", Postgres::shared(), kafka);
    let topic = scene.topic("order");
    let name = scene.name.clone();
    scene.kafka.create_topic(&topic, 1, &[]);
    scene.kafka.allow(&[
        "--operation",
        "All",
        "--topic",
        &name,
        "--resource-pattern-type",
        "prefixed",
    ]);
    let worker = scene
        .worker()
        .over_tls("SASL_SSL", &scene.kafka.secure_bootstrap(), &authority)
        .sasl("PLAIN", kafka::USER, kafka::PASSWORD);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.allow("");
    let deny = ["--topic", &topic];
    scene
        .kafka
        .deny(&[&["--operation", "Write"], &deny[..]].concat());
    let before = scene.position();
    scene.event("k", 2);
    walpost.wait_readiness(503);
    assert_eq!(walpost.get("/health/live").status, 200);
    let ready = walpost.get("/health/ready");
    assert!(ready.body.contains(&topic), "{}", ready.body);
    let complaints = walpost.complaints().join("\n");
    for text in [topic.as_str(), kafka::USER, "WRITE"] {
        assert!(complaints.contains(text), "{text} in {complaints}");
    }
    assert!(scene.confirmed().unwrap() <= before + 64);
    scene
        .kafka
        .undeny(&[&["--operation", "Write"], &deny[..]].concat());
    scene.tail("order").within(2, Duration::from_secs(60));
    walpost.wait_ready();
}

/// A name that did not resolve ended the start; the addresses that brokers had left were tried
/// for ever.
#[test]
fn brokers_that_move_to_other_addresses_are_found_by_name() {
    if !surroundings::possible() {
        return;
    }
    const NAME: &str = "broker.walpost.test";
    let (own, port) = (ports::free(), ports::free());
    let old = Relay::at(("127.0.0.2", port), own);
    let new = Relay::at(("127.0.0.3", port), own);
    let kafka = Kafka::start(&Options {
        behind: Some((own, port)),
        host: Some(NAME),
        ..Options::default()
    });
    let mut scene = Scene::on("moved", Postgres::shared(), kafka);
    let worker = scene
        .worker()
        .set("bootstrap.servers", &format!("{NAME}:{port}"));
    let hosts = Hosts::new();
    let connector = scene.connector();
    let mut walpost = Walpost::start_in(hosts.surroundings(), &worker, &[&connector]);
    walpost.allow("");
    walpost.wait_complaint(&[NAME]);
    walpost.wait_readiness(503);

    hosts.set(&[(NAME, "127.0.0.2")]);
    walpost.wait_streaming();
    scene.event("k", 1);
    let topic = scene.topic("order");
    let mut tail = Tail::new(&scene.kafka.direct_bootstrap(), &[&topic]);
    tail.at_least(1);

    // The old address swallows what it is sent, as after a pulled plug.
    old.set(Weather::Stall);
    hosts.set(&[(NAME, "127.0.0.3")]);
    let moved = Instant::now();
    scene.event("k", 2);
    tail.within(2, Duration::from_secs(120));
    let took = moved.elapsed();
    assert!(took < Duration::from_secs(75), "about a minute: {took:?}");
    assert!(new.carried() > 0);
    walpost.wait_ready();
    let position = scene.position();
    scene.wait_confirmed(position);
}
