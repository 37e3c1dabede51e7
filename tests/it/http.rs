//! What probes, scrapers and people see.

use std::net::TcpListener;
use std::time::Duration;

use crate::support::{Scene, Walpost, http, wait};

#[test]
fn every_page_answers_and_says_what_it_should() {
    let mut scene = Scene::new("http");
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);

    assert_eq!(walpost.get("/health/live").status, 200);
    assert_eq!(walpost.get("/health/ready").status, 200);
    assert_eq!(walpost.get("/nothing").status, 404);

    let status = walpost.get("/status");
    assert!(
        status.content_type.starts_with("application/json"),
        "{}",
        status.content_type
    );
    let connector = &status.json()["connectors"][0];
    assert_eq!(connector["name"], scene.name.as_str());
    assert_eq!(connector["role"], "active");
    assert_eq!(connector["state"], "streaming");
    for stage in ["received", "delivered", "stored", "confirmed"] {
        let lsn = connector["positions"][stage]["lsn"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(lsn.contains('/'), "{stage}: {connector}");
    }

    let name = scene.name.clone();
    let ours = [("connector", name.as_str())];
    wait::until("the server is asked", wait::SOON, || {
        walpost
            .metrics()
            .get("walpost_slot_retained_bytes", &ours)
            .is_some()
    });
    let metrics = walpost.metrics();
    for stage in ["received", "delivered", "stored", "confirmed"] {
        let labels = [("connector", name.as_str()), ("stage", stage)];
        for metric in ["walpost_lag_bytes", "walpost_lag_seconds"] {
            let value = metrics.get(metric, &labels);
            assert!(
                value.is_some_and(|value| (0.0..1e9).contains(&value)),
                "{metric} {value:?}"
            );
        }
    }
    let topic = scene.topic("order");
    let events = [("connector", name.as_str()), ("topic", topic.as_str())];
    assert_eq!(metrics.get("walpost_events_total", &events), Some(1.0));
    assert_eq!(
        metrics.get("walpost_role", &[("connector", &name), ("role", "active")]),
        Some(1.0)
    );
    for class in ["retriable", "config", "poison", "gap", "internal"] {
        let labels = [("connector", name.as_str()), ("class", class)];
        assert_eq!(
            metrics.get("walpost_errors_total", &labels),
            Some(0.0),
            "{class}"
        );
    }
}

/// Lag of an idle connector is about nothing, before and after the first event.
#[test]
fn lag_of_an_idle_connector_is_zero_or_absent() {
    let mut scene = Scene::new("http");
    let mut walpost = scene.start();
    let small = |walpost: &mut Walpost| {
        let metrics = walpost.metrics();
        metrics
            .get("walpost_lag_seconds", &[("stage", "delivered")])
            .unwrap_or(0.0)
    };
    wait::throughout(
        "no lag before the first event",
        Duration::from_millis(500),
        || small(&mut walpost) < 1.0,
    );
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    wait::until("no lag after it", wait::SOON, || small(&mut walpost) == 0.0);
}

/// A publication that loses its table while we run.
#[test]
fn a_table_dropped_from_the_publication_turns_health_red() {
    let mut scene = Scene::new("http");
    let connector = scene
        .connector()
        .set("publication.autocreate.mode", "disabled");
    let name = scene.name.clone();
    scene.sql(&format!("create publication {name} for table outbox"));
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_ready();
    walpost.allow("publication");
    scene.sql(&format!("alter publication {name} drop table outbox"));
    walpost.wait_readiness(503);
    let answer = walpost.get("/health/ready");
    assert!(answer.body.contains("publication"), "{}", answer.body);
    scene.sql(&format!("alter publication {name} add table outbox"));
    walpost.wait_ready();
}

#[test]
fn a_port_in_use_is_a_configuration_error() {
    let scene = Scene::new("http");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let worker = scene
        .worker()
        .set("listeners", &format!("http://127.0.0.1:{port}"));
    Walpost::start(&worker, &[&scene.connector()])
        .expect_exit(2, &["listeners", &port.to_string()]);
}

/// One of two connectors stops; the other goes on, and readiness tells of it.
#[test]
fn one_connector_that_stops_takes_no_other_down() {
    let mut scene = Scene::new("http");
    let missing = scene
        .connector()
        .named(&format!("{}_missing", scene.name))
        .set("slot.name", &format!("{}_missing", scene.name))
        .set("topic.prefix", "missing")
        .set("table.include.list", "public.nowhere");
    let mut walpost = Walpost::start(&scene.worker(), &[&scene.connector(), &missing]).allowing("");
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    wait::until("the other has stopped", wait::SOON, || {
        let status = walpost.get("/status").json();
        let states = status["connectors"].as_array().unwrap();
        states
            .iter()
            .any(|connector| connector["state"] == "stopped")
    });
    scene.event("k", 2);
    scene.tail("order").at_least(2);
    let port = walpost.port();
    assert_eq!(http::get(port, "/health/ready").unwrap().status, 503);
    let (code, _) = walpost.terminate();
    assert_eq!(code, Some(2), "the code of the one that failed");
}

/// Whoever asks for JSON feeds it to a program.
#[test]
fn every_line_of_a_json_log_is_json() {
    let scene = Scene::new("http");
    let mut walpost = scene.start();
    walpost.stop();
    for line in walpost.log().lines() {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok(), "{line}");
    }
}
