//! From real Debezium to walpost and back: one worker file, one connector file, one stored
//! position, one slot, and not one event lost or doubled.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::cleanup::{self, Service, Signal};
use crate::support::{Connector, Scene, Walpost, Worker, kafka, random, wait};

const DEBEZIUM: &str = "debezium-3.6.1.Final";

/// A distributed Connect worker with one running connector.
struct Connect {
    service: Service,
    log: PathBuf,
    url: String,
}

impl Connect {
    fn start(worker: &Worker, connector: &Connector) -> Self {
        let folder = cleanup::folder("connect");
        let log = folder.join("connect.log");
        let port = random::free_port();
        let file = worker
            .clone()
            .set("listeners", &format!("http://127.0.0.1:{port}"))
            .write(&folder);
        let mut command = kafka::java();
        command
            .arg("org.apache.kafka.connect.cli.ConnectDistributed")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap());
        let mut connect = Self {
            service: Service::start(&mut command, "KILL"),
            log,
            url: format!("http://127.0.0.1:{port}/connectors"),
        };
        connect.run(connector);
        connect
    }

    fn agent() -> ureq::Agent {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)));
        ureq::Agent::new_with_config(config.build())
    }

    fn run(&mut self, connector: &Connector) {
        let body = connector.json();
        wait::until(
            "Connect takes the connector",
            Duration::from_secs(240),
            || {
                assert!(
                    self.service.ended().is_none(),
                    "Connect ended:\n{}",
                    self.said()
                );
                let answer = Self::agent()
                    .post(&self.url)
                    .header("content-type", "application/json")
                    .send(body.as_str());
                answer.is_ok_and(|answer| matches!(answer.status().as_u16(), 201 | 409))
            },
        );
        let status = format!("{}/{}/status", self.url, connector.name);
        wait::until("the task runs", Duration::from_secs(180), || {
            let answer = Self::agent().get(&status).call();
            let body: Option<Value> = answer
                .ok()
                .and_then(|mut ok| ok.body_mut().read_json().ok());
            let task = body
                .map(|body| body["tasks"][0].clone())
                .unwrap_or_default();
            let state = task["state"].as_str();
            assert_ne!(state, Some("FAILED"), "{task:#}");
            state == Some("RUNNING")
        });
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A clean stop: Connect writes its offsets.
    fn stop(mut self) {
        self.service.signal(Signal::TERM);
        self.service.wait("Connect", Duration::from_secs(60));
    }
}

/// A worker file that Connect and walpost read alike.
fn worker(scene: &Scene) -> Worker {
    let name = &scene.name;
    let plugins = kafka::cache().join(DEBEZIUM);
    assert!(
        plugins.join("complete").exists(),
        "no Debezium: run `make services`"
    );
    scene
        .worker()
        .set(
            "key.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        )
        .set(
            "value.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        )
        .set("config.storage.topic", &format!("{name}-configs"))
        .set("config.storage.replication.factor", "1")
        .set("status.storage.topic", &format!("{name}-status"))
        .set("status.storage.replication.factor", "1")
        .set("status.storage.partitions", "1")
        .set("offset.flush.interval.ms", "500")
        .set("plugin.path", plugins.to_str().unwrap())
}

#[test]
fn debezium_and_walpost_take_over_from_each_other() {
    let mut scene = Scene::new("handover");
    scene.create_slot();
    let (worker, connector) = (
        worker(&scene),
        scene.connector().set("plugin.name", "pgoutput"),
    );
    let mut tail = scene.tail("order");
    let mut last = 0;
    let mut insert = |scene: &mut Scene| {
        // Transactions of several rows and of one.
        scene.events("order", "k", last + 1, last + 3);
        scene.event("k", last + 4);
        last += 4;
        usize::try_from(last).unwrap()
    };
    for _ in 0..2 {
        let wanted = insert(&mut scene);
        let connect = Connect::start(&worker, &connector);
        tail.within(wanted, Duration::from_secs(180));
        let wanted = insert(&mut scene);
        tail.within(wanted, Duration::from_secs(180));
        connect.stop();

        let wanted = insert(&mut scene);
        let mut walpost = Walpost::start(&worker, &[&connector]);
        walpost.wait_ready();
        tail.exactly(wanted, Duration::from_millis(500));
        let wanted = insert(&mut scene);
        tail.exactly(wanted, Duration::from_millis(500));
        walpost.stop();
    }
    let numbers: Vec<_> = scene
        .records("order")
        .iter()
        .map(|record| record.json()["n"].as_i64().unwrap())
        .collect();
    assert_eq!(
        numbers,
        (1..=last).collect::<Vec<_>>(),
        "each once, in order"
    );
}
