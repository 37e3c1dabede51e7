//! Encrypted and authenticated on both sides.

use std::path::Path;
use std::sync::Arc;

use crate::support::kafka::{self, Options, Secure};
use crate::support::tls::{Authority, Identity};
use crate::support::{Connector, Kafka, Postgres, Scene, Walpost};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A server with a certificate for `localhost`, and only encrypted connections over TCP.
fn secured_postgres(authority: &Authority, server: &Identity, rule: &str) -> Arc<Postgres> {
    let postgres = Postgres::private(&[("listen_addresses", "localhost")]);
    for (name, path) in [
        ("server.crt", &server.certificate),
        ("server.key", &server.key),
        ("ca.crt", &authority.certificate()),
    ] {
        postgres.write_file(name, &std::fs::read_to_string(path).unwrap());
    }
    postgres.write_file("pg_hba.conf", &format!("local all all trust\n{rule}\n"));
    postgres.set("ssl", "on");
    postgres.set("ssl_ca_file", "ca.crt");
    postgres.restart(crate::support::postgres::Shutdown::Fast);
    postgres
}

fn streams(scene: &mut Scene, connector: &Connector) {
    let mut walpost = Walpost::start(&scene.worker(), &[connector]);
    walpost.wait_ready();
    let tls =
        "select count(*) from pg_stat_replication r join pg_stat_ssl s using (pid) where s.ssl";
    assert_eq!(scene.number(tls), Some(1), "the stream is encrypted");
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.stop();
}

fn refused(scene: &Scene, connector: &Connector, said: &[&str]) {
    Walpost::start(&scene.worker(), &[connector]).expect_exit(2, said);
}

#[test]
fn postgres_verify_full_checks_authority_and_name() {
    let authority = Authority::new();
    let server = authority.sign("localhost", "localhost");
    let postgres = secured_postgres(&authority, &server, "hostssl all all all scram-sha-256");
    let mut scene = Scene::on("tls", postgres, Kafka::shared());
    let connector = scene
        .connector()
        .set("database.hostname", "localhost")
        .set("database.sslmode", "verify-full")
        .set("database.sslrootcert", &text(&authority.certificate()));
    streams(&mut scene, &connector);
    refused(
        &scene,
        &connector.clone().set("database.hostname", "127.0.0.1"),
        &["127.0.0.1"],
    );
    let by_address = connector.clone().set("database.hostname", "127.0.0.1");
    let unchecked = by_address.set("database.sslmode", "verify-ca");
    Walpost::start(&scene.worker(), &[&unchecked]).wait_ready();
    let stranger = Authority::new();
    let foreign = connector
        .clone()
        .set("database.sslrootcert", &text(&stranger.certificate()));
    refused(&scene, &foreign, &["certificate"]);
    refused(
        &scene,
        &connector.set("database.sslmode", "disable"),
        &["pg_hba"],
    );
}

#[test]
fn postgres_client_certificates_let_in_and_their_absence_does_not() {
    let authority = Authority::new();
    let server = authority.sign("localhost", "localhost");
    let client = authority.sign("postgres", "postgres");
    let postgres = secured_postgres(&authority, &server, "hostssl all all all cert");
    let mut scene = Scene::on("tls", postgres, Kafka::shared());
    let bare = scene
        .connector()
        .set("database.hostname", "localhost")
        .set("database.sslmode", "verify-full")
        .set("database.sslrootcert", &text(&authority.certificate()));
    let connector = bare
        .clone()
        .set("database.sslcert", &text(&client.certificate))
        .set("database.sslkey", &text(&client.key));
    streams(&mut scene, &connector);
    refused(&scene, &bare, &["certificate"]);
}

/// The channel is bound by the digest that the certificate's own signature uses.
#[test]
fn scram_with_channel_binding_works_with_every_signature() {
    for (algorithm, digest) in [
        ("rsa:2048", "sha384"),
        ("rsa:2048", "sha512"),
        ("ec -pkeyopt ec_paramgen_curve:P-384", "sha384"),
    ] {
        let authority = Authority::new();
        let server = authority.sign_with("localhost", "localhost", algorithm, digest);
        let postgres = secured_postgres(&authority, &server, "hostssl all all all scram-sha-256");
        let mut scene = Scene::on("tls", postgres, Kafka::shared());
        let connector = scene.connector().set("database.sslmode", "require");
        streams(&mut scene, &connector);
    }
}

/// A broker that wants a password over TLS, with further users for `PLAIN`.
fn sasl_cluster(authority: &Authority, users: &[(&str, &str)]) -> Arc<Kafka> {
    Kafka::start(&Options {
        secure: Some(Secure {
            protocol: "SASL_SSL",
            authority,
            client_certificates: false,
        }),
        users,
        ..Options::default()
    })
}

#[test]
fn kafka_sasl_over_tls_with_every_mechanism() {
    let authority = Authority::new();
    let cluster = sasl_cluster(&authority, &[]);
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let mut scene = Scene::on("tls", Postgres::shared(), Arc::clone(&cluster));
        let worker = scene
            .worker()
            .over_tls("SASL_SSL", &cluster.secure_bootstrap(), &authority)
            .sasl(mechanism, kafka::USER, kafka::PASSWORD);
        let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
        walpost.wait_ready();
        scene.event("k", 1);
        scene.tail("order").at_least(1);
        walpost.stop();
    }
}

/// Quotes, blanks and separators are the password's own.
#[test]
fn a_password_of_any_characters_is_sent_as_it_is() {
    let authority = Authority::new();
    let odd = r#"a "b"; c\d\\e=f,'g' #h ${i} äß→ ü\"#;
    let cluster = sasl_cluster(&authority, &[("odd", odd)]);
    let mut scene = Scene::on("tls", Postgres::shared(), Arc::clone(&cluster));
    let quoted = odd.replace('\\', r"\\").replace('"', "\\\"");
    let worker = scene
        .worker()
        .over_tls("SASL_SSL", &cluster.secure_bootstrap(), &authority)
        .sasl("PLAIN", "odd", &quoted);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_ready();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.stop();
    // A password that differs in one character is refused, so that the above was checked.
    let wrong = quoted.replacen('d', "D", 1);
    let worker = worker.sasl("PLAIN", "odd", &wrong);
    Walpost::start(&worker, &[&scene.connector()]).expect_exit(2, &["sasl"]);
}

/// Rotated in Kafka first: wait, say so, go on with whatever is right again.
#[test]
fn a_kafka_password_that_changes_is_an_outage_and_no_end() {
    const OTHER: &str = "planted-rotated";
    let authority = Authority::new();
    let cluster = sasl_cluster(&authority, &[]);
    let mut scene = Scene::on("tls", Postgres::shared(), Arc::clone(&cluster));
    let folder = crate::support::cleanup::folder("secrets");
    let file = folder.join("password");
    std::fs::write(&file, kafka::PASSWORD).unwrap();
    let placeholder = format!("${{dir:{}:password}}", folder.display());
    let worker = scene
        .worker()
        .over_tls("SASL_SSL", &cluster.secure_bootstrap(), &authority)
        .sasl("SCRAM-SHA-512", kafka::USER, &placeholder);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene.event("k", 1);
    let mut tail = scene.tail("order");
    tail.at_least(1);

    // A restart of the broker ends the connections that are logged in.
    let rotate = |password: &str| {
        cluster.set_password("SCRAM-SHA-512", kafka::USER, password);
        cluster.stop_node(0);
        cluster.start_node(0);
    };
    walpost.allow("");
    rotate(OTHER);
    scene.event("k", 2);
    walpost.wait_complaint(&["uthenticat"]);
    walpost.wait_readiness(503);
    assert_eq!(walpost.get("/health/live").status, 200);

    // A restart with the new one, beside which nothing was lost.
    let mut old = walpost;
    std::fs::write(&file, OTHER).unwrap();
    let (code, _) = old.terminate();
    assert_eq!(code, Some(0), "{}", old.log());
    let mut walpost = old.again();
    walpost.wait_streaming();
    scene.tail("order").at_least(2);

    // Taken back while it runs: it recovers by itself.
    walpost.allow("");
    rotate(kafka::PASSWORD);
    scene.event("k", 3);
    walpost.wait_readiness(503);
    rotate(OTHER);
    scene.tail("order").at_least(3);
    walpost.wait_ready();
    assert!(walpost.is_running());
}

#[test]
fn kafka_client_certificates() {
    let authority = Authority::new();
    let cluster = Kafka::start(&Options {
        secure: Some(Secure {
            protocol: "SSL",
            authority: &authority,
            client_certificates: true,
        }),
        ..Options::default()
    });
    let client = authority.sign(kafka::USER, kafka::USER);
    let store = crate::support::cleanup::folder("store").join("client.pem");
    let pem = |path: &Path| std::fs::read_to_string(path).unwrap();
    std::fs::write(
        &store,
        format!("{}{}", pem(&client.key), pem(&client.certificate)),
    )
    .unwrap();
    let mut scene = Scene::on("tls", Postgres::shared(), Arc::clone(&cluster));
    let worker = scene
        .worker()
        .over_tls("SSL", &cluster.secure_bootstrap(), &authority)
        .set("ssl.keystore.type", "PEM")
        .set("ssl.keystore.location", &text(&store));
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_ready();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.stop();
}
