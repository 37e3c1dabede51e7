//! Connections to Postgres and what they log in with.

use std::time::{Duration, Instant};

use crate::support::cleanup::{self, Service, Signal};
use crate::support::command::{run_files, run_with};
use crate::support::kafka::Options;
use crate::support::postgres::{self, Shutdown};
use crate::support::relay::Weather;
use crate::support::{Connector, Kafka, Postgres, Relay, Scene, Walpost, ports, wait};

/// The old walsender lives until it notices that its client is gone; the new process died of it,
/// or hung without a word.
#[test]
fn a_slot_held_by_a_vanished_host_is_waited_for() {
    // Long enough for the second process to find the slot taken on a busy machine.
    let postgres = Postgres::private(&[("wal_sender_timeout", "8s")]);
    let mut scene = Scene::on("held", postgres, Kafka::shared());
    let relay = Relay::to(scene.postgres.port());
    let port = relay.port().to_string();
    let distant = scene.connector().set("database.port", &port);
    let mut first = Walpost::start(&scene.worker(), &[&distant]).allowing("");
    first.wait_streaming();
    scene.event("k", 1);
    let mut tail = scene.tail("order");
    tail.at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    let holder = scene.number("select pid::bigint from pg_stat_replication");
    // The plug is pulled: the server is told nothing.
    relay.set(Weather::HalfOpen);
    first.signal(Signal::STOP);
    let vanished = Instant::now();
    let mut second = scene.spawn();
    second.wait_log(&holder.unwrap().to_string());
    assert!(second.log().contains("127.0.0.1"), "{}", second.log());
    scene.event("k", 2);
    tail.within(2, Duration::from_secs(25));
    assert!(vanished.elapsed() < Duration::from_secs(25));
    tail.exactly(2, Duration::from_millis(300));
    first.kill();
}

/// A server that stops waits for its walsenders; one that cannot confirm held it up for ever.
#[test]
fn undelivered_rows_do_not_keep_a_server_from_stopping() {
    let kafka = Kafka::start(&Options::default());
    let mut scene = Scene::on("stopping", Postgres::private(&[]), kafka);
    let mut walpost = scene.start();
    walpost.allow("");
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    scene.kafka.freeze();
    let before = scene.position();
    scene.event("k", 2);
    let confirmed = scene.confirmed().unwrap();
    assert!(confirmed <= before + 64, "not confirmed undelivered");
    let took = scene.postgres.stop(Shutdown::Fast);
    // Ten seconds of it are the grace of a stop; held up, it would last for a minute.
    assert!(took < Duration::from_secs(30), "{took:?}");
    scene.postgres.start();
    scene.reconnect();
    scene.kafka.thaw();
    wait::until("both events arrived", Duration::from_secs(60), || {
        scene.records("order").len() >= 2
    });
}

/// Passwords were pasted into URLs, or read by a shell.
#[test]
fn a_password_is_taken_literally_wherever_it_comes_from() {
    let mut scene = Scene::new("password");
    let role = scene.name.clone();
    scene.sql(&format!("create role {role} login superuser replication"));
    let long = format!("planted-{}", "x".repeat(200));
    let odd = r#"planted-p@ss:w/o?r#d%20 '"\&=+ü€"#;
    let spaced = " planted-surrounded ";
    for password in [odd, spaced, "planted-%", "planted-$HOME", &long] {
        let quoted = password.replace('\'', "''");
        scene.sql(&format!("alter role {role} password '{quoted}'"));
        let connector = scene.connector().set("database.user", &role);
        let literal = connector.clone().set("database.password", password);
        run_files(&["check"], &scene.worker(), &[&literal]).expect(0);
        let wrong = connector.clone().set("database.password", "planted-other");
        run_files(&["check"], &scene.worker(), &[&wrong]).expect(2);
        if password == odd || password == spaced {
            let folder = cleanup::folder("secret");
            std::fs::write(folder.join("password"), password).unwrap();
            let by_env = connector
                .clone()
                .set("database.password", "${env:DB_PASSWORD}");
            let by_file = connector.set(
                "database.password",
                &format!("${{dir:{}:password}}", folder.display()),
            );
            for connector in [by_env, by_file] {
                let files = crate::support::connector::write_files(&scene.worker(), &[&connector]);
                let mut arguments = vec!["check"];
                arguments.extend(files.iter().map(String::as_str));
                run_with(&arguments, &[("DB_PASSWORD", password)]).expect(0);
            }
        }
    }
    scene.sql(&format!("drop role {role}"));
}

/// Timeouts set on the role ended the session that creates the slot, or the one that holds the
/// snapshot, and left a slot behind.
#[test]
fn timeouts_of_the_role_end_neither_slot_creation_nor_a_slow_snapshot() {
    let mut scene = Scene::new("timeouts");
    let database = scene.name.clone();
    scene.sql(&format!(
        "alter database {database} set lock_timeout = '300ms';
         alter database {database} set statement_timeout = '700ms';
         alter database {database} set idle_in_transaction_session_timeout = '300ms'"
    ));
    scene.event("k", 1);
    let mut open = scene.connect();
    open.batch_execute(
        "set statement_timeout = 0; set idle_in_transaction_session_timeout = 0;
         begin; insert into other (note) values ('open')",
    )
    .unwrap();
    let connector = scene
        .connector()
        .set("snapshot.mode", "initial")
        .set("snapshot.select.statement.overrides", "public.outbox")
        .set(
            "snapshot.select.statement.overrides.public.outbox",
            "select o.* from outbox o, pg_sleep(1.5)",
        );
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    // Creating the slot waits for the open transaction, longer than any of the timeouts.
    wait::throughout("it waits", Duration::from_millis(1500), || {
        walpost.is_running()
    });
    open.batch_execute("commit").unwrap();
    walpost.wait_streaming();
    scene.event("k", 2);
    scene.tail("order").exactly(2, Duration::from_millis(200));
    let slots = "select count(*) from pg_replication_slots where database = current_database()";
    assert_eq!(scene.number(slots), Some(1), "no slot is left behind");
}

/// Catalog flags gave wrong answers on managed servers: what matters is whether it works.
#[test]
fn each_want_of_the_server_ends_in_the_statement_that_mends_it() {
    let postgres = Postgres::private(&[("max_replication_slots", "1")]);
    let mut scene = Scene::on("wants", postgres, Kafka::shared());
    let role = scene.name.clone();
    let password = postgres::PASSWORD;
    scene.sql(&format!(
        "create role {role} login password '{password}'; grant select on outbox to {role};
         select pg_create_physical_replication_slot('other', true)"
    ));
    let connector = scene.connector().set("database.user", &role);
    let worker = scene.worker();
    let says = |connector: &Connector, texts: &[&str]| {
        let finished = run_files(&["check"], &worker, &[connector]);
        finished.expect(2).says(texts);
    };
    says(&connector, &["REPLICATION", &role]);
    let mode = |mode| connector.clone().set("publication.autocreate.mode", mode);
    for mode in [mode("filtered"), mode("all_tables"), mode("disabled")] {
        says(&mode, &["CREATE PUBLICATION"]);
    }
    says(&connector, &["max_replication_slots"]);
    scene.sql(&format!(
        "alter role {role} replication; create publication {role} for table outbox;
         select pg_drop_replication_slot('other')"
    ));
    run_files(&["check"], &scene.worker(), &[&connector]).expect(0);
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
}

/// Poolers refuse a replication connection, or answer it with something of their own.
#[test]
fn a_pooler_in_between_is_recognised_and_the_way_around_it_said() {
    let mut scene = Scene::new("pooler");
    let folder = cleanup::folder("pgbouncer");
    let port = ports::free();
    let file = folder.join("pgbouncer.ini");
    let users = folder.join("users.txt");
    let (user, password) = (postgres::USER, postgres::PASSWORD);
    std::fs::write(&users, format!("\"{user}\" \"{password}\"\n")).unwrap();
    std::fs::write(
        &file,
        format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\n\
             auth_file = {}\npool_mode = session\n\
             ignore_startup_parameters = extra_float_digits,options\n",
            scene.postgres.port(),
            users.display()
        ),
    )
    .unwrap();
    let mut command = postgres::as_server(std::path::Path::new("/usr/sbin/pgbouncer"));
    command
        .arg("-q")
        .arg(&file)
        .stderr(std::fs::File::create(folder.join("log")).unwrap());
    let _pooler = Service::start(&mut command, "KILL");
    wait::until("the pooler listens", wait::SOON, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let through = scene.connector().set("database.port", &port.to_string());
    Walpost::start(&scene.worker(), &[&through]).expect_exit(2, &["pooler", "database.hostname"]);
    // The direct address helps.
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.stop();
}
