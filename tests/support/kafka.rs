//! A Kafka of our own: KRaft, one node or several.

mod access;
mod settings;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::metadata::Metadata;
use rdkafka::{ClientConfig, ClientContext};

use walpost::foreign::{add_brokers, knows_the_cluster};

use super::cleanup::{self, Service, Signal};
use super::tls::Authority;
use super::{ports, wait};

/// The version that `tests/services/install.sh` fetches.
pub(crate) const VERSION: &str = "4.3.1";

/// The secure listener's user, and its password, which no output of walpost may contain.
pub(crate) const USER: &str = "walpost";
pub(crate) const PASSWORD: &str = "planted-kafka-password";

/// What a cluster is to be.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// Nodes; 0 means one.
    pub(crate) nodes: usize,
    /// Broker properties beside the kit's.
    pub(crate) properties: &'a [(&'a str, &'a str)],
    /// A second listener; the plain one stays for the test itself.
    pub(crate) secure: Option<Secure<'a>>,
    /// Rights are checked. The plain listener's user may do anything, [`USER`] nothing until
    /// [`Kafka::allow`] is called.
    pub(crate) acls: bool,
    /// Further users of the secure listener, for `PLAIN`, with their passwords.
    pub(crate) users: &'a [(&'a str, &'a str)],
    /// The plain listener's port, and the one that its clients are sent to: a relay's, which has to
    /// run already. Single node only, and no secure listener: its port is for
    /// [`Kafka::direct_bootstrap`].
    pub(crate) behind: Option<(u16, u16)>,
    /// The name that clients of the plain listener are sent to, in place of 127.0.0.1.
    pub(crate) host: Option<&'a str>,
}

/// How the second listener is secured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secure<'a> {
    /// `SSL`, `SASL_SSL` or `SASL_PLAINTEXT`.
    pub(crate) protocol: &'a str,
    /// Signs the broker's certificate and is trusted for clients.
    pub(crate) authority: &'a Authority,
    /// Clients must show a certificate.
    pub(crate) client_certificates: bool,
}

/// A running cluster, or one whose nodes were stopped.
pub(crate) struct Kafka {
    nodes: Vec<Node>,
    admin: AdminClient<DefaultClientContext>,
}

#[derive(Debug)]
struct Node {
    folder: PathBuf,
    port: u16,
    advertised: u16,
    secure_port: u16,
    service: Mutex<Option<Service>>,
}

impl Kafka {
    /// The cluster shared by all tests of the run.
    pub(crate) fn shared() -> Arc<Kafka> {
        static SHARED: LazyLock<Arc<Kafka>> = LazyLock::new(|| Kafka::start(&Options::default()));
        Arc::clone(&SHARED)
    }

    /// A cluster for one test, which may stop or freeze it.
    pub(crate) fn start(options: &Options<'_>) -> Arc<Kafka> {
        let nodes: Vec<Node> = (0..options.nodes.max(1))
            .map(|_| {
                let own = ports::free();
                let (port, advertised) = options.behind.unwrap_or((own, own));
                Node {
                    folder: cleanup::folder("kafka"),
                    port,
                    advertised,
                    secure_port: ports::free(),
                    service: Mutex::new(None),
                }
            })
            .collect();
        settings::write(&nodes, options);
        let bootstrap: Vec<String> = nodes.iter().map(Node::direct).collect();
        let admin = ClientConfig::new()
            .set("bootstrap.servers", bootstrap.join(","))
            .set("reconnect.backoff.max.ms", "500")
            .set("log_level", "2")
            .create()
            .unwrap();
        let kafka = Self { nodes, admin };
        for node in &kafka.nodes {
            node.start();
        }
        kafka.wait_ready();
        Arc::new(kafka)
    }

    /// `bootstrap.servers` of the plain listener.
    pub(crate) fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(Node::address).collect();
        addresses.join(",")
    }

    /// The plain listener's real port, behind whatever is advertised.
    pub(crate) fn port(&self) -> u16 {
        self.nodes[0].port
    }

    /// `bootstrap.servers` of a listener that leads around the relay of [`Options::behind`].
    pub(crate) fn direct_bootstrap(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(Node::direct).collect();
        addresses.join(",")
    }

    /// `bootstrap.servers` of the secure listener.
    pub(crate) fn secure_bootstrap(&self) -> String {
        format!("localhost:{}", self.nodes[0].secure_port)
    }

    /// The first node's process.
    pub(crate) fn pid(&self) -> u32 {
        self.nodes[0]
            .service
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .pid()
    }

    /// SIGSTOP: connections stay, nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        for node in &self.nodes {
            node.service
                .lock()
                .unwrap()
                .as_ref()
                .unwrap()
                .signal(signal);
        }
    }

    /// Stops node `index` in an orderly way.
    pub(crate) fn stop_node(&self, index: usize) {
        let mut service = self.nodes[index].service.lock().unwrap().take().unwrap();
        service.signal(Signal::TERM);
        service.wait("Kafka", Duration::from_secs(60));
    }

    /// SIGKILL for node `index`.
    pub(crate) fn kill_node(&self, index: usize) {
        self.nodes[index]
            .service
            .lock()
            .unwrap()
            .take()
            .unwrap()
            .kill();
    }

    /// Starts a stopped node again, on the same port and data.
    pub(crate) fn start_node(&self, index: usize) {
        self.nodes[index].start();
        self.wait_ready();
    }

    /// Waits until every running node is part of the cluster.
    fn wait_ready(&self) {
        let running = || {
            let up = |node: &&Node| node.service.lock().unwrap().is_some();
            self.nodes.iter().filter(up).count()
        };
        wait::until("Kafka answers", Duration::from_secs(240), || {
            for node in &self.nodes {
                node.check_alive();
            }
            self.metadata()
                .is_some_and(|metadata| metadata.brokers().len() >= running())
        });
    }

    fn admin(&self) -> &AdminClient<DefaultClientContext> {
        hold(self.admin.inner(), &self.direct_bootstrap());
        &self.admin
    }

    fn metadata(&self) -> Option<Metadata> {
        self.admin()
            .inner()
            .fetch_metadata(None, Duration::from_secs(2))
            .ok()
    }

    /// Topics and their partition counts.
    pub(crate) fn topics(&self) -> BTreeMap<String, usize> {
        let metadata = wait::value("Kafka lists its topics", wait::SOON, || self.metadata());
        metadata
            .topics()
            .iter()
            .map(|topic| (topic.name().to_owned(), topic.partitions().len()))
            .collect()
    }

    /// The broker that leads partition 0 of `topic`, as an index for [`Kafka::kill_node`].
    pub(crate) fn leader(&self, topic: &str) -> usize {
        let metadata = wait::value("Kafka lists its topics", wait::SOON, || self.metadata());
        let topic = metadata.topics().iter().find(|found| found.name() == topic);
        usize::try_from(topic.unwrap().partitions()[0].leader() - 1).unwrap()
    }

    /// Creates `topic` on every node of the cluster.
    pub(crate) fn create_topic(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        self.create_topics(&[(topic.to_owned(), partitions)], settings);
    }

    /// Creates several topics in one request and waits until they can be written to.
    pub(crate) fn create_topics(&self, topics: &[(String, i32)], settings: &[(&str, &str)]) {
        let replicas = i32::try_from(self.nodes.len()).unwrap();
        let wanted: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|(name, partitions)| {
                settings.iter().fold(
                    NewTopic::new(name, *partitions, TopicReplication::Fixed(replicas)),
                    |topic, (setting, value)| topic.set(setting, value),
                )
            })
            .collect();
        let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(30)));
        let results = block_on(self.admin().create_topics(&wanted, &options)).unwrap();
        for result in results {
            result.unwrap_or_else(|(topic, code)| panic!("create topic {topic}: {code}"));
        }
        wait::until("new topics have leaders", wait::SOON, || {
            self.metadata().is_some_and(|metadata| {
                topics.iter().all(|(name, _)| {
                    let found = metadata.topics().iter().find(|topic| topic.name() == name);
                    found.is_some_and(|topic| {
                        topic.partitions().iter().all(|part| part.leader() > 0)
                    })
                })
            })
        });
    }

    /// Changes one setting of `topic`.
    pub(crate) fn set_topic(&self, topic: &str, name: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        let (changes, options) = ([change], AdminOptions::new());
        for result in block_on(self.admin().alter_configs(&changes, &options)).unwrap() {
            result.unwrap();
        }
    }

    /// Gives `topic` this many partitions, more than it has.
    pub(crate) fn grow_topic(&self, topic: &str, partitions: usize) {
        let (grown, options) = ([NewPartitions::new(topic, partitions)], AdminOptions::new());
        for result in block_on(self.admin().create_partitions(&grown, &options)).unwrap() {
            result.unwrap();
        }
    }

    /// Deletes `topic`.
    pub(crate) fn delete_topic(&self, topic: &str) {
        let options = AdminOptions::new();
        for result in block_on(self.admin().delete_topics(&[topic], &options)).unwrap() {
            result.unwrap_or_else(|(topic, code)| panic!("delete topic {topic}: {code}"));
        }
        wait::until("a topic is gone", wait::SOON, || {
            !self.topics().contains_key(topic)
        });
    }
}

impl Node {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn direct(&self) -> String {
        if self.advertised == self.port {
            self.address()
        } else {
            format!("127.0.0.1:{}", self.secure_port)
        }
    }

    fn start(&self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("server.log"))
            .unwrap();
        let mut command = java();
        command
            .arg("kafka.Kafka")
            .arg(self.folder.join("server.properties"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let mut service = self.service.lock().unwrap();
        assert!(service.is_none(), "the node runs already");
        *service = Some(Service::start(&mut command, "KILL"));
    }

    fn check_alive(&self) {
        let mut service = self.service.lock().unwrap();
        if let Some(status) = service.as_mut().and_then(Service::ended) {
            let log = std::fs::read_to_string(self.folder.join("server.log"));
            panic!("Kafka ended ({status}):\n{}", log.unwrap_or_default());
        }
    }
}

/// Where `tests/services/install.sh` keeps jars.
pub(crate) fn cache() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
    from("WALPOST_CACHE").unwrap_or_else(|| {
        from("XDG_CACHE_HOME")
            .unwrap_or_else(|| from("HOME").expect("HOME is set").join(".cache"))
            .join("walpost")
    })
}

/// A Java process with Kafka on its class path, tuned to start fast and stay small.
pub(crate) fn java() -> Command {
    let folder = cache().join(format!("kafka-{VERSION}"));
    assert!(
        folder.join("complete").exists(),
        "no Kafka in {}: run `make services`",
        folder.display()
    );
    let mut command = Command::new("java");
    command
        .args(["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto"])
        .args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
        .arg("-cp")
        .arg(folder.join("libs").join("*"));
    command
}

/// Shows a client the way back if a broker that was not admitted to its cluster has told it of no
/// broker: it would not find it.
pub(crate) fn hold<C: ClientContext>(client: &Client<C>, servers: &str) {
    if !knows_the_cluster(client) {
        add_brokers(client, &CString::new(servers).unwrap());
    }
}

/// Runs one future of the admin client, which brings its own thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}
