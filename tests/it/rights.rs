//! The least rights on a broker with an authorizer, as `docs/operations.md` lists them.

use std::time::Duration;

use crate::support::kafka::{Options, Secure};
use crate::support::tls::Authority;
use crate::support::{Kafka, Postgres, Scene, Tail, Walpost, Worker, wait};

/// User, and the one right it lacks: operation, resource, what the message must say.
const USERS: [(&str, Lack); 10] = [
    ("whole", None),
    ("no_write", Some(("Write", "events", "WRITE"))),
    ("no_create", Some(("Create", "events", "CREATE"))),
    ("no_offsets_write", Some(("Write", "offsets", "WRITE"))),
    ("no_offsets_read", Some(("Read", "offsets", "READ"))),
    ("no_offsets_create", Some(("Create", "offsets", "CREATE"))),
    ("dead_whole", None),
    ("no_dead_create", Some(("Create", "dead", "CREATE"))),
    ("no_dead_write", Some(("Write", "dead", "WRITE"))),
    ("no_dead_read", Some(("Read", "dead", "READ"))),
];

type Lack = Option<(&'static str, &'static str, &'static str)>;

const PASSWORD: &str = "planted-user-password";

fn worker(scene: &Scene, authority: &Authority, user: &str) -> Worker {
    scene
        .worker()
        .over_tls("SASL_SSL", &scene.kafka.secure_bootstrap(), authority)
        .sasl("PLAIN", user, PASSWORD)
        .set("offset.storage.topic", &format!("offsets.{user}"))
}

#[test]
fn each_right_of_the_list_is_enough_and_its_absence_is_named() {
    let authority = Authority::new();
    let passwords = USERS.map(|(user, _)| (user, PASSWORD));
    let kafka = Kafka::start(&Options {
        secure: Some(Secure {
            protocol: "SASL_SSL",
            authority: &authority,
            client_certificates: false,
        }),
        acls: true,
        users: &passwords,
        properties: &[("auto.create.topics.enable", "false")],
        ..Options::default()
    });
    let mut scene = Scene::on("rights", Postgres::shared(), kafka);
    for (operation, resource) in [
        ("Write", "events"),
        ("Create", "events"),
        ("Write", "offsets"),
        ("Read", "offsets"),
        ("DescribeConfigs", "offsets"),
        ("Create", "offsets"),
        ("Write", "dead"),
        ("Create", "dead"),
        ("Read", "dead"),
    ] {
        let lacks =
            |lack: &Lack| matches!(lack, Some((o, r, _)) if (*o, *r) == (operation, resource));
        let users: Vec<&str> = USERS
            .iter()
            .filter(|(_, lack)| !lacks(lack))
            .map(|(user, _)| *user)
            .collect();
        let prefix = format!("{resource}.");
        let on = ["--topic", &prefix, "--resource-pattern-type", "prefixed"];
        scene
            .kafka
            .allow_users(&users, &[&["--operation", operation][..], &on[..]].concat());
    }
    scene.event("k", 1);
    for (user, lack) in USERS {
        let own = format!("{}_{user}", scene.name);
        let connector = scene
            .connector()
            .named(&own)
            .set("slot.name", &own)
            .set("publication.name", &own)
            .set("topic.prefix", &own)
            .set("topic.creation.default.partitions", "1")
            .set("topic.creation.default.replication.factor", "1")
            .router("route.topic.replacement", &format!("events.{user}"));
        let connector = if user.contains("dead") {
            scene.sql(
                "alter table outbox alter aggregatetype drop not null; delete from outbox;
                 insert into outbox (aggregatetype, aggregateid) values (null, 'k')",
            );
            scene.event("k", 1);
            connector
                .set("errors.tolerance", "all")
                .set("errors.deadletterqueue.topic.name", &format!("dead.{user}"))
                .set("errors.deadletterqueue.order", "aggregate")
        } else {
            connector
        };
        let mut walpost = Walpost::start(&worker(&scene, &authority, user), &[&connector]);
        let Some((_, resource, right)) = lack else {
            walpost.wait_streaming();
            if user == "dead_whole" {
                walpost.allow("dead-letter topic");
                let topic = format!("dead.{user}");
                let mut tail = Tail::new(&scene.kafka.bootstrap(), &[&topic]);
                tail.exactly(2, Duration::from_millis(200));
                walpost.stop();
                continue;
            }
            let topic = format!("events.{user}");
            let mut tail = Tail::new(&scene.kafka.bootstrap(), &[&topic]);
            tail.at_least(1);
            // And once more, from the stored position.
            walpost.stop();
            let mut walpost = walpost.again();
            walpost.wait_streaming();
            scene.event("k", 2);
            tail.exactly(2, Duration::from_millis(200));
            walpost.stop();
            continue;
        };
        walpost.allow("");
        if (resource, right) == ("offsets", "READ") {
            // Needed from the second start on, when there is a position to be found.
            walpost.wait_streaming();
            let position = scene.position();
            let confirmed = format!(
                "select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots
                 where slot_name = '{own}'"
            );
            wait::until("a position is stored", wait::SOON, || {
                scene.number(&confirmed) >= Some(position)
            });
            walpost.stop();
            walpost = walpost.again();
        }
        let topic = format!("{resource}.{user}");
        walpost.wait_complaint(&[&topic, right, user]);
        // Without its offsets topic it does not begin at all.
        if (resource, right) == ("offsets", "CREATE") {
            assert_eq!(walpost.wait_exit(wait::SOON).code(), Some(2));
        } else {
            assert_eq!(walpost.get("/health/live").status, 200);
        }
    }
}
