//! The pre-flight check: what it finds, and that it changes nothing.

use super::connectors::connector;
use super::server::Server;
use crate::config::{Autocreate, Connector, Secret};
use crate::source::Session;

const OUTBOX: &str = "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, \
    aggregateid text, type text, payload jsonb)";

/// All problems as one text; panics when there are none.
async fn problems(session: &Session, connector: &Connector) -> String {
    let problems = session.preflight(connector).await.unwrap_err();
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

#[tokio::test]
async fn a_fit_server_passes_and_stays_as_it_is() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let connector = connector(server.database(), "public.outbox");
    let found = sql.preflight(&connector).await.unwrap();
    assert_eq!(found.tables, ["public.outbox"]);
    assert!(found.slot.is_none());
    let notes = found.notes.join("\n");
    let create = "will run: CREATE PUBLICATION \"p\" FOR TABLE \"public\".\"outbox\"";
    assert!(notes.contains(create), "{notes}");
    let again = sql.preflight(&connector).await.unwrap();
    assert_eq!(again.notes, found.notes);

    let report = sql.ensure_publication(&connector).await.unwrap();
    assert!(report.created);
    let report = sql.ensure_publication(&connector).await.unwrap();
    assert!(!report.created && report.statements.is_empty());
}

#[tokio::test]
async fn a_publication_that_could_never_deliver_is_refused_with_its_remedy() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    sql.execute("CREATE TABLE other (id int)").await.unwrap();
    let connector = connector(server.database(), "public.outbox");
    let add = "run: ALTER PUBLICATION \"p\" ADD TABLE \"public\".\"outbox\"";
    for (publication, remedy) in [
        ("CREATE PUBLICATION p", add),
        ("CREATE PUBLICATION p FOR TABLE other", add),
        (
            "CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'update, delete')",
            "run: ALTER PUBLICATION \"p\" SET (publish = 'insert",
        ),
        (
            "CREATE PUBLICATION p FOR TABLE outbox (id, aggregatetype, aggregateid)",
            "wants column \"payload\" of public.outbox, but the publication's column list",
        ),
    ] {
        sql.execute("DROP PUBLICATION IF EXISTS p").await.unwrap();
        sql.execute(publication).await.unwrap();
        let text = problems(&sql, &connector).await;
        assert!(text.contains(remedy), "{publication}: {text}");
    }
}

#[tokio::test]
async fn a_publication_that_delivers_nothing_is_only_noted_where_that_is_wanted() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let mut connector = connector(server.database(), "public.outbox");
    connector.publication.tolerate_mismatch = true;
    for publication in [
        "CREATE PUBLICATION p",
        "CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'delete')",
    ] {
        sql.execute("DROP PUBLICATION IF EXISTS p").await.unwrap();
        sql.execute(publication).await.unwrap();
        let notes = sql.preflight(&connector).await.unwrap().notes.join("\n");
        assert!(notes.contains("run: ALTER PUBLICATION"), "{notes}");
    }
    assert_eq!(sql.publication_trouble(&connector).await.unwrap(), None);
}

#[tokio::test]
async fn filtered_mode_keeps_the_tables_in_step() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    sql.execute("CREATE TABLE other (id int); CREATE PUBLICATION p FOR TABLE other")
        .await
        .unwrap();
    let mut connector = connector(server.database(), "public.outbox");
    connector.publication.autocreate = Autocreate::Filtered;
    sql.preflight(&connector).await.unwrap();
    let report = sql.ensure_publication(&connector).await.unwrap();
    assert_eq!(
        report.statements,
        [
            "ALTER PUBLICATION \"p\" ADD TABLE \"public\".\"outbox\"",
            "ALTER PUBLICATION \"p\" DROP TABLE \"public\".\"other\""
        ]
    );
}

/// What `ALTER PUBLICATION` would fail with is found before it is run.
#[tokio::test]
async fn a_publication_that_cannot_be_kept_in_step_is_a_finding() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let cdc = "CREATE ROLE cdc LOGIN REPLICATION; GRANT SELECT ON outbox TO cdc; \
               CREATE TABLE other (id int); CREATE PUBLICATION p FOR TABLE other";
    sql.execute(cdc).await.unwrap();
    let mut database = server.database();
    "cdc".clone_into(&mut database.user);
    let limited = Session::connect(&database, "test").await.unwrap();
    let mut connector = connector(database, "public.outbox");
    connector.publication.autocreate = Autocreate::Filtered;
    let text = problems(&limited, &connector).await;
    for part in ["ADD TABLE", "DROP TABLE", "run as their owner"] {
        assert!(text.contains(part), "{part} is missing from: {text}");
    }
    sql.execute("DROP PUBLICATION p; CREATE PUBLICATION p FOR ALL TABLES")
        .await
        .unwrap();
    let text = problems(&sql, &connector).await;
    assert!(text.contains("FOR ALL TABLES"), "{text}");
}

/// A start would put it right, but nothing starts while a stream runs.
#[tokio::test]
async fn what_a_start_would_mend_is_trouble_while_streaming() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let mut connector = connector(server.database(), "public.outbox");
    for mode in [Autocreate::Filtered, Autocreate::AllTables] {
        connector.publication.autocreate = mode;
        sql.ensure_publication(&connector).await.unwrap();
        assert_eq!(sql.publication_trouble(&connector).await.unwrap(), None);
        sql.execute("DROP TABLE outbox").await.unwrap();
        sql.execute(OUTBOX).await.unwrap();
        let trouble = sql.publication_trouble(&connector).await.unwrap().unwrap();
        assert!(trouble.contains("ADD TABLE"), "{mode:?}: {trouble}");
        sql.execute("DROP PUBLICATION p").await.unwrap();
        let trouble = sql.publication_trouble(&connector).await.unwrap().unwrap();
        assert!(
            trouble.contains("CREATE PUBLICATION"),
            "{mode:?}: {trouble}"
        );
    }
}

#[tokio::test]
async fn columns_that_cannot_arrive_are_named() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text, payload jsonb, \
         aggregateid text GENERATED ALWAYS AS (payload->>'id') STORED)",
    )
    .await
    .unwrap();
    sql.execute("CREATE PUBLICATION p FOR TABLE outbox")
        .await
        .unwrap();
    let text = problems(&sql, &connector(server.database(), "public.outbox")).await;
    assert!(text.contains("did you mean \"aggregate_type\"?"), "{text}");
    assert!(
        text.contains("\"aggregateid\" of public.outbox, but it is a generated column"),
        "{text}"
    );
}

#[tokio::test]
async fn all_problems_of_a_bare_server_are_told_at_once() {
    let server = Server::start(&["wal_level=replica"]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    sql.execute("CREATE ROLE cdc LOGIN; CREATE SCHEMA app; ALTER TABLE outbox SET SCHEMA app")
        .await
        .unwrap();
    let mut database = server.database();
    "cdc".clone_into(&mut database.user);
    let limited = Session::connect(&database, "test").await.unwrap();
    let mut connector = connector(database, "app.outbox");
    let text = problems(&limited, &connector).await;
    for part in [
        "ALTER SYSTEM SET wal_level = logical",
        "ALTER ROLE \"cdc\" LOGIN REPLICATION",
        "GRANT SELECT ON \"app\".\"outbox\" TO \"cdc\"",
        "run as their owner: CREATE PUBLICATION \"p\"",
    ] {
        assert!(text.contains(part), "{part} is missing from: {text}");
    }
    connector.tables = super::server::tables("public.outbix");
    let text = problems(&limited, &connector).await;
    assert!(text.contains("look like an outbox: app.outbox"), "{text}");
}

#[tokio::test]
async fn a_refused_login_is_about_access_and_hides_the_password() {
    let server = Server::start(&["password_encryption=scram-sha-256"]);
    let sql = server.session().await;
    let password = "p@ss:w/o?r#d%20 '\"\\&=+ü€ ";
    sql.execute(&format!("CREATE ROLE cdc LOGIN PASSWORD $${password}$$"))
        .await
        .unwrap();
    sql.execute("SET password_encryption = 'md5'; CREATE ROLE old LOGIN PASSWORD 'old'")
        .await
        .unwrap();
    server.host_based_access(
        "local all all reject\nhost all old all md5\nhost all cdc all scram-sha-256\n",
    );
    let mut database = server.database();
    "cdc".clone_into(&mut database.user);
    database.password = Some(Secret::new(password));
    // The reload is asynchronous; until it is done nobody asks for a password.
    let wrong = loop {
        let mut wrong = database.clone();
        wrong.password = Some(Secret::new("wrong-secret"));
        match Session::connect(&wrong, "test").await {
            Err(failure) => break failure,
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(wrong.class(), crate::error::Class::Config);
    assert!(!wrong.to_string().contains("wrong-secret"), "{wrong}");
    assert_eq!(wrong.once_worked().class(), crate::error::Class::Retriable);
    Session::connect(&database, "test").await.unwrap();
    "old".clone_into(&mut database.user);
    database.password = Some(Secret::new("old"));
    Session::connect(&database, "test").await.unwrap();
    database.password = None;
    let missing = Session::connect(&database, "test").await.err().unwrap();
    assert!(
        missing.to_string().contains("database.password"),
        "{missing}"
    );
}
