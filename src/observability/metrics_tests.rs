use std::time::{Duration, Instant};

use super::*;
use crate::observability::{About, Progress, ServerSample, SnapshotView, State, Telemetry};

fn connector(observability: &Observability) -> Telemetry {
    observability.connector(About {
        name: "orders".to_owned(),
        slot: "orders_slot".to_owned(),
        database: "shop".to_owned(),
        offsets: "topic connect-offsets".to_owned(),
        dead_letters: None,
    })
}

fn page(observability: &Observability) -> String {
    render(observability, Format::Prometheus).unwrap()
}

/// The value of the one series that begins with `series`.
fn value(page: &str, series: &str) -> Option<f64> {
    let mut found = page
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    let value = found.next();
    assert!(found.next().is_none(), "{series} twice in\n{page}");
    value
}

fn progress() -> Progress {
    Progress {
        received: Lsn::new(1_000),
        delivered: Lsn::new(900),
        stored: Lsn::new(800),
        confirmed: Lsn::new(700),
        ..Progress::default()
    }
}

fn sample(at: Instant) -> Option<ServerSample> {
    Some(ServerSample {
        wal_position: Lsn::new(1_000).unwrap(),
        clock_us: None,
        wal_status: Some("extended".to_owned()),
        safe_wal_size: Some(-5),
        retained_bytes: Some(4_096),
        invalidation_reason: None,
        inactive_seconds: Some(7),
        seconds_to_limit: Some(90),
        at,
    })
}

#[test]
fn the_published_names_are_these() {
    let observability = Observability::new();
    let telemetry = connector(&observability);
    telemetry.topic("outbox.event.order").add(7, 700);
    telemetry.error(Class::Retriable);
    telemetry.retry();
    telemetry.reconnected();
    telemetry.dropped("tolerated", 2);
    telemetry.replaced("timestamp", 3);
    telemetry.state(State::Streaming);
    telemetry.server(sample(Instant::now()));
    telemetry.progress(&progress());
    telemetry.queue(3, 30, 0.25);
    let page = page(&observability);
    for (series, expected) in [
        (
            r#"walpost_lag_bytes{connector="orders",stage="received"}"#,
            0.0,
        ),
        (
            r#"walpost_lag_bytes{connector="orders",stage="delivered"}"#,
            100.0,
        ),
        (
            r#"walpost_lag_bytes{connector="orders",stage="stored"}"#,
            200.0,
        ),
        (
            r#"walpost_lag_bytes{connector="orders",stage="confirmed"}"#,
            300.0,
        ),
        (
            r#"walpost_lag_seconds{connector="orders",stage="confirmed"}"#,
            0.0,
        ),
        (
            r#"walpost_position_bytes{connector="orders",stage="stored"}"#,
            800.0,
        ),
        (
            r#"walpost_server_position_bytes{connector="orders"}"#,
            1_000.0,
        ),
        (
            r#"walpost_slot_retained_bytes{connector="orders"}"#,
            4_096.0,
        ),
        (r#"walpost_slot_safe_wal_bytes{connector="orders"}"#, -5.0),
        (r#"walpost_slot_seconds_to_limit{connector="orders"}"#, 90.0),
        (r#"walpost_slot_inactive_seconds{connector="orders"}"#, 7.0),
        (r#"walpost_slot_invalidated{connector="orders"}"#, 0.0),
        (
            r#"walpost_slot_wal_status{connector="orders",status="extended"}"#,
            1.0,
        ),
        (
            r#"walpost_slot_wal_status{connector="orders",status="lost"}"#,
            0.0,
        ),
        (
            r#"walpost_events_total{connector="orders",topic="outbox.event.order"}"#,
            7.0,
        ),
        (
            r#"walpost_event_bytes_total{connector="orders",topic="outbox.event.order"}"#,
            700.0,
        ),
        (
            r#"walpost_errors_total{connector="orders",class="retriable"}"#,
            1.0,
        ),
        (
            r#"walpost_errors_total{connector="orders",class="gap"}"#,
            0.0,
        ),
        (r#"walpost_retries_total{connector="orders"}"#, 1.0),
        (r#"walpost_reconnects_total{connector="orders"}"#, 1.0),
        (
            r#"walpost_dropped_events_total{connector="orders",reason="tolerated"}"#,
            2.0,
        ),
        (
            r#"walpost_replaced_values_total{connector="orders",what="timestamp"}"#,
            3.0,
        ),
        (r#"walpost_role{connector="orders",role="active"}"#, 1.0),
        (r#"walpost_role{connector="orders",role="standby"}"#, 0.0),
        (
            r#"walpost_state{connector="orders",state="streaming"}"#,
            1.0,
        ),
        (r#"walpost_queue_records{connector="orders"}"#, 3.0),
        (r#"walpost_queue_bytes{connector="orders"}"#, 30.0),
        (r#"walpost_queue_fill_ratio{connector="orders"}"#, 0.25),
    ] {
        assert_eq!(value(&page, series), Some(expected), "{series} in\n{page}");
    }
    assert!(
        page.contains("\nwalpost_last_delivered_timestamp_seconds{"),
        "{page}"
    );
    assert!(page.contains("walpost_build_info{version="), "{page}");
    assert!(page.contains("\nprocess_start_time_seconds "), "{page}");
    assert!(page.contains("stage=\"stored\"} 800\n"), "{page}");
    assert!(
        page.contains("# TYPE walpost_events_total counter\n"),
        "{page}"
    );
}

#[test]
fn what_is_unknown_is_absent() {
    let observability = Observability::new();
    let telemetry = connector(&observability);
    let absent = [
        "walpost_lag_",
        "walpost_slot_",
        "walpost_server_",
        "snapshot_rows",
    ];
    let names_none = |page: &str| {
        for name in absent {
            assert!(!page.contains(name), "{name} in\n{page}");
        }
    };
    names_none(&page(&observability));
    telemetry.progress(&progress());
    telemetry.server(sample(Instant::now()));
    assert!(page(&observability).contains("walpost_lag_bytes"));
    telemetry.server(None);
    names_none(&page(&observability));
    let Some(old) = Instant::now().checked_sub(Duration::from_secs(16)) else {
        return; // the machine has been up for less
    };
    telemetry.server(sample(old));
    names_none(&page(&observability));
}

#[test]
fn counters_start_at_zero() {
    let observability = Observability::new();
    let telemetry = connector(&observability);
    telemetry.topic("t");
    let page = page(&observability);
    for series in [
        r#"walpost_events_total{connector="orders",topic="t"}"#,
        r#"walpost_retries_total{connector="orders"}"#,
        r#"walpost_reconnects_total{connector="orders"}"#,
    ] {
        assert_eq!(value(&page, series), Some(0.0), "{page}");
    }
    for class in Class::ALL {
        let series = format!(
            r#"walpost_errors_total{{connector="orders",class="{}"}}"#,
            class.label()
        );
        assert_eq!(value(&page, &series), Some(0.0), "{page}");
    }
}

#[test]
fn role_and_state_are_one_hot() {
    let observability = Observability::new();
    let telemetry = connector(&observability);
    telemetry.state(State::Standby {
        holder: "pid 7".to_owned(),
    });
    let page = page(&observability);
    let ones = |name: &str| {
        page.lines()
            .filter(|line| line.starts_with(name) && line.ends_with(" 1"))
            .count()
    };
    assert_eq!(ones("walpost_role{"), 1, "{page}");
    assert_eq!(ones("walpost_state{"), 1, "{page}");
    let standby = r#"walpost_role{connector="orders",role="standby"}"#;
    assert_eq!(value(&page, standby), Some(1.0));
}

#[test]
fn a_snapshot_shows_while_it_runs() {
    let observability = Observability::new();
    let telemetry = connector(&observability);
    telemetry.snapshot(Some(SnapshotView {
        rows: 10,
        estimated_rows: None,
        tables_done: 1,
        tables: 2,
        rows_per_second: 5.0,
    }));
    let shown = page(&observability);
    let rows = r#"walpost_snapshot_rows{connector="orders"}"#;
    assert_eq!(value(&shown, rows), Some(10.0));
    assert!(
        !shown.contains("walpost_snapshot_estimated_rows"),
        "{shown}"
    );
    telemetry.snapshot(None);
    assert!(!page(&observability).contains("walpost_snapshot"));
}

#[test]
fn several_connectors_share_each_family() {
    let observability = Observability::new();
    for name in ["a", "b\"quoted"] {
        observability.connector(About {
            name: name.to_owned(),
            slot: name.to_owned(),
            database: "shop".to_owned(),
            offsets: String::new(),
            dead_letters: None,
        });
    }
    let page = page(&observability);
    assert_eq!(page.matches("# TYPE walpost_retries_total").count(), 1);
    assert!(
        page.contains(r#"walpost_retries_total{connector="b\"quoted"}"#),
        "{page}"
    );
}

#[test]
fn open_metrics_comes_only_on_request() {
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5";
    assert_eq!(Format::negotiate(Some(prometheus)), Format::OpenMetrics);
    for accept in [
        None,
        Some("*/*"),
        Some("text/plain"),
        Some("application/openmetrics-text;q=0"),
    ] {
        assert_eq!(Format::negotiate(accept), Format::Prometheus, "{accept:?}");
    }
    let observability = Observability::new();
    connector(&observability);
    let page = render(&observability, Format::OpenMetrics).unwrap();
    assert!(page.ends_with("# EOF\n"), "{page}");
    assert!(page.contains("# TYPE walpost_errors counter\n"), "{page}");
    assert!(page.contains("walpost_errors_total{"), "{page}");
}
