//! From real Debezium to walpost and back, as docs/migrating-from-debezium.md says: one worker file,
//! one connector file, one stored position, one slot, and not one event lost or doubled.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::cleanup::{self, Service};
use crate::support::{Connector, Scene, Walpost, Worker, command, kafka, ports, wait};

const DEBEZIUM: &str = "debezium-3.6.1.Final";

/// A distributed Connect worker with one running connector.
struct Connect {
    service: Service,
    log: PathBuf,
    /// Of its REST interface.
    address: String,
}

impl Connect {
    fn start(worker: &Worker, connector: &Connector) -> Self {
        let folder = cleanup::folder("connect");
        let log = folder.join("connect.log");
        let port = ports::free();
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
            address: format!("http://127.0.0.1:{port}"),
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
        let url = format!("{}/connectors", self.address);
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
                    .post(&url)
                    .header("content-type", "application/json")
                    .send(body.as_str());
                answer.is_ok_and(|answer| matches!(answer.status().as_u16(), 201 | 409))
            },
        );
        let status = format!("{url}/{}/status", connector.name);
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

/// The commands of docs/migrating-from-debezium.md, in its order.
struct Page {
    blocks: Vec<String>,
    folder: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Page {
    fn new(folder: PathBuf, connect: &str, name: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/migrating-from-debezium.md");
        let text = std::fs::read_to_string(file).unwrap();
        let blocks = text.split("```sh\n").skip(1);
        let blocks = blocks.map(|block| block.split("```").next().unwrap().to_owned());
        // Whatever the binary under test is called, the page says `walpost`.
        let tools = cleanup::folder("bin");
        std::os::unix::fs::symlink(command::binary(), tools.join("walpost")).unwrap();
        let tools = tools.display();
        let path = std::env::var("PATH").unwrap();
        Self {
            blocks: blocks.collect(),
            folder,
            environment: vec![
                ("CONNECT", connect.to_owned()),
                ("NAME", name.to_owned()),
                ("PATH", format!("{tools}:{path}")),
            ],
        }
    }

    /// The one block with `word`.
    fn block(&self, word: &str) -> &str {
        let mut found = self.blocks.iter().filter(|block| block.contains(word));
        let block = found
            .next()
            .unwrap_or_else(|| panic!("no block with {word:?}"));
        assert!(found.next().is_none(), "two blocks with {word:?}");
        block
    }

    /// Runs a block as a reader would; gives what it said.
    fn run(&self, word: &str) -> String {
        let output = Command::new("sh")
            .args(["-e", "-c", self.block(word)])
            .current_dir(&self.folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let text = [&output.stdout, &output.stderr].map(|out| String::from_utf8_lossy(out));
        let text = text.concat();
        assert!(output.status.success(), "{word}: {text}");
        text
    }

    /// Starts `walpost run` as its block says.
    fn start(&self, name: &str) -> Walpost {
        assert_eq!(
            self.block("walpost run").trim(),
            r#"walpost run -w worker.properties "$NAME.json""#
        );
        let file = |name: String| self.folder.join(name).display().to_string();
        let files = [
            file("worker.properties".into()),
            file(format!("{name}.json")),
        ];
        let [worker, connector] = files;
        Walpost::start_files(vec!["-w".to_owned(), worker, connector], &[])
    }
}

#[test]
fn the_migration_page_is_true() {
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
    let folder = cleanup::folder("migration");
    worker.write(&folder);
    let wanted = insert(&mut scene);
    let connect = Connect::start(&worker, &connector);
    tail.within(wanted, Duration::from_secs(180));
    let page = Page::new(folder, &connect.address, &connector.name);
    for _ in 0..2 {
        let wanted = insert(&mut scene);
        tail.within(wanted, Duration::from_secs(180));
        let said = page.run("walpost check");
        for text in [
            "extended.headers.enabled: context headers are off here",
            "would wait as standby",
        ] {
            assert!(said.contains(text), "{said}");
        }
        page.run("/stop");

        let wanted = insert(&mut scene);
        let mut walpost = page.start(&connector.name);
        walpost.wait_ready();
        walpost.wait_log("resuming from the stored position");
        tail.exactly(wanted, Duration::from_millis(500));
        let wanted = insert(&mut scene);
        tail.exactly(wanted, Duration::from_millis(500));
        walpost.stop();
        let wanted = insert(&mut scene);
        page.run("/resume");
        tail.within(wanted, Duration::from_secs(180));
    }
    page.run("DELETE");
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
