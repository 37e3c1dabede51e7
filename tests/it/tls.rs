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

#[test]
fn kafka_sasl_over_tls_with_every_mechanism() {
    let authority = Authority::new();
    let cluster = Kafka::start(&Options {
        secure: Some(Secure {
            protocol: "SASL_SSL",
            authority: &authority,
            client_certificates: false,
        }),
        ..Options::default()
    });
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
