//! TLS, certificates and sockets, on both kinds of connection.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::server::Server;
use crate::config::{Database, Host, Secret, SessionTarget, SslMode};
use crate::error::{Class, Failure};
use crate::source::{Replication, Session};

/// A certificate authority of the test's own.
struct Authority<'a> {
    dir: &'a Path,
}

impl Authority<'_> {
    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(self.dir)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {errors}");
    }

    fn create(&self, name: &str) {
        self.openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 2 \
             -subj /CN={name}"
        ));
    }

    /// A certificate signed by `ca`, with `digest` (of key kind `key`), for `subject`.
    fn issue(&self, name: &str, key: &str, digest: &str, subject: &str) {
        self.openssl(&format!(
            "req -newkey {key} -nodes -keyout {name}.key -out {name}.csr -subj /CN={subject}"
        ));
        let extensions = format!("{name}.ext");
        std::fs::write(
            self.dir.join(&extensions),
            format!("subjectAltName=DNS:{subject}\nbasicConstraints=CA:FALSE\n"),
        )
        .unwrap();
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -{digest} \
             -out {name}.crt -extfile {extensions}"
        ));
    }

    fn path(&self, file: &str) -> Option<PathBuf> {
        Some(self.dir.join(file))
    }
}

async fn both(database: &Database) -> Result<Session, Failure> {
    let session = Session::connect(database, "test").await?;
    Replication::connect(database).await?.close().await;
    Ok(session)
}

async fn refused(database: &Database) -> Failure {
    let failure = both(database).await.err().unwrap();
    assert_eq!(failure.class(), Class::Config, "{failure}");
    failure
}

#[tokio::test]
async fn channel_binding_follows_the_digest_of_the_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority { dir: dir.path() };
    authority.create("ca");
    for (name, key, digest) in [
        ("rsa256", "rsa:2048", "sha256"),
        ("rsa384", "rsa:2048", "sha384"),
        ("rsa512", "rsa:2048", "sha512"),
        (
            "ecdsa384",
            "ec -pkeyopt ec_paramgen_curve:secp384r1",
            "sha384",
        ),
    ] {
        authority.issue(name, key, digest, "localhost");
        let server = Server::start_with_tls(dir.path(), name);
        let sql = server.session().await;
        sql.execute("CREATE ROLE cdc LOGIN SUPERUSER REPLICATION PASSWORD 'secret'")
            .await
            .unwrap();
        server.host_based_access("hostssl all,replication all all scram-sha-256\n");
        let mut database = server.database();
        database.hosts = vec![Host::new("localhost", server.port)];
        "cdc".clone_into(&mut database.user);
        database.password = Some(Secret::new("secret"));
        database.tls.root_cert = authority.path("ca.crt");
        for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
            database.tls.mode = mode;
            let session = both(&database)
                .await
                .unwrap_or_else(|f| panic!("{name}: {f}"));
            let row = session
                .row(
                    "t",
                    "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
                )
                .await
                .unwrap();
            assert_eq!(row.get(0), Some("t"));
        }
    }
}

#[tokio::test]
async fn each_mode_verifies_what_it_promises() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority { dir: dir.path() };
    authority.create("ca");
    authority.create("other");
    authority.issue("server", "rsa:2048", "sha256", "db.example");
    authority.issue("client", "rsa:2048", "sha256", "postgres");
    authority.openssl("pkcs8 -topk8 -nocrypt -in client.key -outform DER -out client.pk8");
    let server = Server::start_with_tls(dir.path(), "server");
    let mut database = server.database();
    database.hosts = vec![Host::new("localhost", server.port)];

    for (mode, root, complaint) in [
        (SslMode::Require, "other.crt", None),
        (SslMode::VerifyCa, "ca.crt", None),
        (SslMode::VerifyCa, "other.crt", Some("not signed by a root")),
        (SslMode::VerifyFull, "ca.crt", Some("another host name")),
        (SslMode::VerifyFull, "missing.crt", Some("cannot be read")),
    ] {
        database.tls.mode = mode;
        database.tls.root_cert = authority.path(root);
        match complaint {
            None => drop(both(&database).await.unwrap()),
            Some(complaint) => {
                let text = refused(&database).await.to_string();
                assert!(text.contains(complaint), "{mode:?} {root}: {text}");
            }
        }
    }

    server.host_based_access("hostssl all,replication all all cert\n");
    database.tls.mode = SslMode::VerifyCa;
    database.tls.root_cert = authority.path("ca.crt");
    while both(&database).await.is_ok() {}
    refused(&database).await;
    database.tls.cert = authority.path("client.crt");
    for key in ["client.key", "client.pk8"] {
        database.tls.key = authority.path(key);
        both(&database).await.unwrap();
    }
    // The server takes no plain connection: allow must go on to TLS, disable must not.
    database.tls.mode = SslMode::Allow;
    both(&database).await.unwrap();
    database.tls.mode = SslMode::Disable;
    refused(&database).await;
}

#[tokio::test]
async fn hosts_are_tried_in_order_and_sockets_have_no_tls() {
    let server = Server::start(&[]);
    let mut database = server.database();
    database.hosts = vec![
        Host::new("/nowhere", server.port),
        Host::new("127.0.0.2", server.port),
        Host::new(server.socket_dir(), server.port),
    ];
    both(&database).await.unwrap();
    database.hosts.pop();
    let failure = both(&database).await.err().unwrap();
    assert_eq!(failure.class(), Class::Retriable);
    let text = failure.to_string();
    assert!(
        text.contains("/nowhere") && text.contains("127.0.0.2"),
        "{text}"
    );
    database.hosts = vec![Host::new("127.0.0.1", server.port)];
    database.tls.mode = SslMode::VerifyFull;
    database.tls.root_cert = None;
    let text = refused(&database).await.to_string();
    assert!(text.contains("the server has none"), "{text}");
}

#[tokio::test]
async fn a_server_that_is_not_what_was_asked_for_is_passed_over() {
    use SessionTarget::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
    let server = Server::start(&[]);
    let mut database = server.database();
    let sql = server.session().await;
    for (read_only, will_do, will_not) in [
        (
            "off",
            [Any, Primary, PreferStandby, ReadWrite],
            [Standby, ReadOnly],
        ),
        (
            "on",
            [Any, Primary, PreferStandby, ReadOnly],
            [Standby, ReadWrite],
        ),
    ] {
        let setting =
            format!("ALTER ROLE postgres SET default_transaction_read_only = {read_only}");
        sql.execute(&setting).await.unwrap();
        for target in will_do {
            database.target = target;
            let session = both(&database).await.unwrap();
            assert_eq!(
                session.host().to_string(),
                format!("127.0.0.1:{}", server.port)
            );
        }
        for target in will_not {
            database.target = target;
            let failure = both(&database).await.err().unwrap();
            assert_eq!(failure.class(), Class::Retriable, "it may become one");
            let text = failure.to_string();
            assert!(text.contains(target.word()), "{text}");
        }
    }
}
