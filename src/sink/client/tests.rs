use super::*;

fn properties(pairs: &[(&str, &str)]) -> KafkaProperties {
    let mut all = KafkaProperties::default();
    all.0
        .insert("bootstrap.servers".into(), "localhost:1".into());
    for (name, value) in pairs {
        all.0.insert((*name).into(), (*value).into());
    }
    all
}

fn translated(pairs: &[(&str, &str)]) -> Settings {
    Settings::translate(&properties(pairs), Role::Producer, "test").unwrap()
}

fn problem(pairs: &[(&str, &str)]) -> String {
    match Settings::translate(&properties(pairs), Role::Producer, "test") {
        Ok(_) => panic!("{pairs:?} was accepted"),
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn a_request_on_a_dead_line_is_given_up_and_sent_again_before_a_position_fails() {
    for role in [Role::Producer, Role::Admin, Role::Consumer] {
        let settings = Settings::translate(&properties(&[]), role, "test").unwrap();
        assert_eq!(settings.get("socket.timeout.ms"), Some("30000"), "{role:?}");
    }
}

#[test]
fn java_names_become_librdkafkas() {
    for (java, value, ours, translated_value) in [
        ("linger.ms", "7", "linger.ms", "7"),
        ("request.timeout.ms", "20000", "socket.timeout.ms", "20000"),
        (
            "max.request.size",
            "5000000",
            "message.max.bytes",
            "5000000",
        ),
        ("batch.size", "4000000", "batch.size", "4000000"),
        ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
        (
            "receive.buffer.bytes",
            "65536",
            "socket.receive.buffer.bytes",
            "65536",
        ),
        (
            "metadata.max.age.ms",
            "10000",
            "topic.metadata.refresh.interval.ms",
            "10000",
        ),
        (
            "metadata.max.age.ms",
            "10000",
            "metadata.max.age.ms",
            "30000",
        ),
        ("compression.zstd.level", "3", "compression.level", "3"),
        (
            "max.in.flight.requests.per.connection",
            "1",
            "max.in.flight",
            "1",
        ),
        ("client.id", "mine", "client.id", "mine"),
        (
            "queue.buffering.backpressure.threshold",
            "10",
            "queue.buffering.backpressure.threshold",
            "10",
        ),
    ] {
        let settings = translated(&[(java, value)]);
        assert_eq!(settings.get(ours), Some(translated_value), "{java}");
    }
}

#[test]
fn what_would_break_order_or_completeness_is_not_taken_over() {
    for (java, value, ours) in [
        ("acks", "1", "acks"),
        ("enable.idempotence", "false", "enable.idempotence"),
        ("message.timeout.ms", "5", "message.timeout.ms"),
        (
            "max.in.flight.requests.per.connection",
            "10",
            "max.in.flight",
        ),
        ("batch.size", "16384", "batch.size"),
        ("no.such.property", "x", "no.such.property"),
        // Given by whoever opens the sink, as Connect does.
        ("transactional.id", "x", "transactional.id"),
    ] {
        let settings = translated(&[(java, value)]);
        assert_eq!(settings.get(ours), None, "{java}");
        assert_eq!(settings.notices.len(), 1, "{java}: {:?}", settings.notices);
    }
}

#[test]
fn what_the_property_table_calls_without_effect_has_none() {
    for (java, value, ours) in [
        ("retries", "3", "retries"),
        ("delivery.timeout.ms", "120000", "message.timeout.ms"),
    ] {
        assert_eq!(translated(&[(java, value)]).get(ours), None, "{java}");
    }
}

#[test]
fn another_partitioner_is_honoured_and_said() {
    let settings = translated(&[("partitioner", "consistent_random")]);
    assert_eq!(settings.get("partitioner"), Some("consistent_random"));
    assert!(settings.notices[0].contains("other partitions"));
    assert!(problem(&[("partitioner.class", "com.acme.Mine")]).contains("com.acme.Mine"));
}

#[test]
fn producer_properties_do_not_reach_other_clients() {
    let all = properties(&[("linger.ms", "7"), ("compression.type", "lz4")]);
    let settings = Settings::translate(&all, Role::Consumer, "test").unwrap();
    assert_eq!(settings.get("linger.ms"), None);
    assert_eq!(settings.get("compression.type"), None);
}

#[test]
fn tls_in_each_of_its_shapes() {
    let settings = translated(&[("security.protocol", "ssl")]);
    assert_eq!(settings.get("ssl.ca.location"), Some("probe"));
    let settings = translated(&[
        ("security.protocol", "SSL"),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", "/ca"),
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", "/both"),
        ("ssl.key.password", "geheim"),
        ("ssl.endpoint.identification.algorithm", ""),
    ]);
    assert_eq!(settings.get("ssl.ca.location"), Some("/ca"));
    assert_eq!(settings.get("ssl.key.location"), Some("/both"));
    assert_eq!(settings.get("ssl.certificate.location"), Some("/both"));
    assert_eq!(settings.get("ssl.key.password"), Some("geheim"));
    assert_eq!(
        settings.get("ssl.endpoint.identification.algorithm"),
        Some("none")
    );
    let settings = translated(&[
        ("security.protocol", "SSL"),
        ("ssl.truststore.certificates", "CA"),
        ("ssl.keystore.key", "KEY"),
        ("ssl.keystore.certificate.chain", "CHAIN"),
    ]);
    assert_eq!(settings.get("ssl.ca.pem"), Some("CA"));
    assert_eq!(settings.get("ssl.key.pem"), Some("KEY"));
    assert_eq!(settings.get("ssl.certificate.pem"), Some("CHAIN"));
    let settings = translated(&[
        ("security.protocol", "SSL"),
        ("ssl.keystore.location", "/k.p12"),
        ("ssl.keystore.password", "pw"),
    ]);
    assert_eq!(settings.get("ssl.keystore.location"), Some("/k.p12"));
    let text = problem(&[
        ("security.protocol", "SSL"),
        ("ssl.truststore.location", "/t.jks"),
        ("ssl.keystore.location", "/k.jks"),
    ]);
    assert!(text.contains("/t.jks") && text.contains("/k.jks"), "{text}");
}

#[test]
fn sasl_in_each_of_its_shapes() {
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                 username=\"u\" password=\"p\";";
    let settings = translated(&[
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.jaas.config", plain),
    ]);
    assert_eq!(settings.get("sasl.username"), Some("u"));
    assert_eq!(settings.get("sasl.password"), Some("p"));
    let settings = translated(&[
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        (
            "sasl.login.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        ),
        ("sasl.oauthbearer.token.endpoint.url", "https://idp/token"),
        (
            "sasl.jaas.config",
            "X required clientId=\"c\" clientSecret=\"s\" scope=\"a b\" extension_pool=\"1\";",
        ),
    ]);
    assert_eq!(settings.get("sasl.oauthbearer.method"), Some("oidc"));
    assert_eq!(settings.get("sasl.oauthbearer.client.secret"), Some("s"));
    assert_eq!(settings.get("sasl.oauthbearer.scope"), Some("a b"));
    assert_eq!(settings.get("sasl.oauthbearer.extensions"), Some("pool=1"));
    for (mechanism, jaas, word) in [
        ("GSSAPI", plain, "not in this build"),
        ("SCRAM-SHA-256", plain, "ScramLoginModule"),
        ("PLAIN", "X required", "semicolon"),
        (
            "PLAIN",
            "a.PlainLoginModule required username=u;",
            "password",
        ),
    ] {
        let text = problem(&[
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", mechanism),
            ("sasl.jaas.config", jaas),
        ]);
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn every_mechanism_and_codec_is_in_the_build() {
    use rdkafka::admin::AdminClient;
    for (mechanism, module) in [
        ("PLAIN", "PlainLoginModule"),
        ("SCRAM-SHA-256", "ScramLoginModule"),
        ("SCRAM-SHA-512", "ScramLoginModule"),
    ] {
        let jaas = format!("{module} required username=u password=p;");
        let settings = translated(&[
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", mechanism),
            ("sasl.jaas.config", &jaas),
        ]);
        let made: Result<AdminClient<Ears>, _> = settings.create(Ears::default());
        assert!(made.is_ok(), "{mechanism}");
    }
    let settings = translated(&[
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        (
            "sasl.oauthbearer.token.endpoint.url",
            "https://localhost:1/t",
        ),
        ("sasl.jaas.config", "X required clientId=c clientSecret=s;"),
    ]);
    let made: Result<AdminClient<Ears>, _> = settings.create(Ears::default());
    assert!(made.is_ok(), "OAUTHBEARER");
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let settings = translated(&[("compression.type", codec)]);
        let made: Result<AdminClient<Ears>, _> = settings.create(Ears::default());
        assert!(made.is_ok(), "{codec}");
    }
}

#[test]
fn a_value_that_the_client_refuses_is_named_by_its_java_name_only() {
    use rdkafka::admin::AdminClient;
    let settings = translated(&[("max.request.size", "5000"), ("linger.ms", "s3cret")]);
    let made: Result<AdminClient<Ears>, _> = settings.create(Ears::default());
    let text = made.err().map(|failure| failure.to_string()).unwrap();
    assert!(
        text.contains("linger.ms") && !text.contains("s3cret"),
        "{text}"
    );
}
