//! A Kafka of our own: KRaft, one node or several.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::metadata::Metadata;

use super::cleanup::{self, Service, Signal};
use super::tls::{Authority, Identity};
use super::{random, wait};

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
                let own = random::free_port();
                let (port, advertised) = options.behind.unwrap_or((own, own));
                Node {
                    folder: cleanup::folder("kafka"),
                    port,
                    advertised,
                    secure_port: random::free_port(),
                    service: Mutex::new(None),
                }
            })
            .collect();
        configure(&nodes, options);
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

    /// Sends clients of the plain listener to another port from the next start on, as after a
    /// change of address.
    pub(crate) fn advertise(&self, port: u16) {
        let node = &self.nodes[0];
        let file = node.folder.join("server.properties");
        let text = std::fs::read_to_string(&file).unwrap();
        let address = |port| format!("advertised.listeners=PLAINTEXT://127.0.0.1:{port}");
        let changed = text.replace(&address(node.advertised), &address(port));
        assert_ne!(text, changed, "advertised once per value");
        std::fs::write(&file, changed).unwrap();
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

    fn metadata(&self) -> Option<Metadata> {
        self.admin
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
        let results = block_on(self.admin.create_topics(&wanted, &options)).unwrap();
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
        for result in block_on(self.admin.alter_configs(&changes, &options)).unwrap() {
            result.unwrap();
        }
    }

    /// Deletes `topic`.
    pub(crate) fn delete_topic(&self, topic: &str) {
        let options = AdminOptions::new();
        for result in block_on(self.admin.delete_topics(&[topic], &options)).unwrap() {
            result.unwrap_or_else(|(topic, code)| panic!("delete topic {topic}: {code}"));
        }
        wait::until("a topic is gone", wait::SOON, || {
            !self.topics().contains_key(topic)
        });
    }

    /// Gives [`USER`] rights, in the words of Kafka's own tool, such as
    /// `--operation Write --topic orders`.
    pub(crate) fn allow(&self, rights: &[&str]) {
        self.change_rights("--add", rights);
    }

    /// Takes rights away again.
    pub(crate) fn forbid(&self, rights: &[&str]) {
        self.change_rights("--remove", rights);
    }

    /// Gives several users the same rights at once.
    pub(crate) fn allow_users(&self, users: &[&str], rights: &[&str]) {
        let names: Vec<String> = users.iter().map(|user| format!("User:{user}")).collect();
        java()
            .arg("org.apache.kafka.tools.AclCommand")
            .args(["--bootstrap-server", &self.bootstrap(), "--add", "--force"])
            .args(names.iter().flat_map(|name| ["--allow-principal", name]))
            .args(rights)
            .output_of_success();
    }

    /// Denies [`USER`] what it was given.
    pub(crate) fn deny(&self, rights: &[&str]) {
        self.change_rule("--add", "--deny-principal", rights);
    }

    /// Takes a denial back.
    pub(crate) fn undeny(&self, rights: &[&str]) {
        self.change_rule("--remove", "--deny-principal", rights);
    }

    fn change_rights(&self, verb: &str, rights: &[&str]) {
        self.change_rule(verb, "--allow-principal", rights);
    }

    fn change_rule(&self, verb: &str, rule: &str, rights: &[&str]) {
        java()
            .arg("org.apache.kafka.tools.AclCommand")
            .args(["--bootstrap-server", &self.bootstrap(), verb, "--force"])
            .args([rule, &format!("User:{USER}")])
            .args(rights)
            .output_of_success();
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

/// Writes the nodes' files and formats their storage.
fn configure(nodes: &[Node], options: &Options<'_>) {
    let cluster = "d2FscG9zdC10ZXN0LWNsdQ";
    let controllers: Vec<u16> = nodes.iter().map(|_| random::free_port()).collect();
    let voters: Vec<String> = controllers
        .iter()
        .enumerate()
        .map(|(index, port)| format!("{}@127.0.0.1:{port}", index + 1))
        .collect();
    let identity = options
        .secure
        .map(|secure| secure.authority.sign("localhost", "localhost"));
    let formatting: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let mut text = properties(node, index + 1, controllers[index], &voters, options);
            if let (Some(secure), Some(identity)) = (options.secure, &identity) {
                text.push_str(&secure_properties(secure, identity, options.users));
            }
            let file = node.folder.join("server.properties");
            std::fs::write(&file, text).unwrap();
            let mut command = java();
            command
                .args(["kafka.tools.StorageTool", "format", "-t", cluster, "-c"])
                .arg(&file);
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                command.args([
                    "--add-scram",
                    &format!("{mechanism}=[name={USER},password={PASSWORD}]"),
                ]);
            }
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in formatting {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "format Kafka's storage: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn properties(
    node: &Node,
    id: usize,
    controller: u16,
    voters: &[String],
    options: &Options<'_>,
) -> String {
    let mut listeners = format!(
        "CONTROLLER://127.0.0.1:{controller},PLAINTEXT://127.0.0.1:{}",
        node.port
    );
    let mut advertised = format!("PLAINTEXT://127.0.0.1:{}", node.advertised);
    let mut protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned();
    if let Some(secure) = options.secure {
        write!(listeners, ",SECURE://127.0.0.1:{}", node.secure_port).unwrap();
        write!(advertised, ",SECURE://localhost:{}", node.secure_port).unwrap();
        write!(protocols, ",SECURE:{}", secure.protocol).unwrap();
    }
    // The broker's own traffic, and the kit's, must not pass the relay.
    let mut inner = "";
    if options.behind.is_some() {
        assert!(options.secure.is_none(), "its listener has the same port");
        let listener = format!(",DIRECT://{}", node.direct());
        listeners.push_str(&listener);
        advertised.push_str(&listener);
        protocols.push_str(",DIRECT:PLAINTEXT");
        inner = "inter.broker.listener.name=DIRECT\n";
    }
    let copies = voters.len().min(3);
    let in_sync = copies.div_ceil(2);
    let mut text = format!(
        "process.roles=broker,controller
node.id={id}
controller.quorum.voters={}
controller.listener.names=CONTROLLER
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map={protocols}
{inner}log.dirs={}
num.partitions=3
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.num.partitions=1
offsets.topic.replication.factor={copies}
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
controlled.shutdown.max.retries=1
",
        voters.join(","),
        node.folder.join("data").display(),
    );
    if options.acls {
        text.push_str(
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
",
        );
    }
    for (name, value) in options.properties {
        writeln!(text, "{name}={value}").unwrap();
    }
    text
}

fn secure_properties(secure: Secure<'_>, identity: &Identity, users: &[(&str, &str)]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let users: String = users
        .iter()
        .map(|(name, password)| format!(" user_{name}=\"{}\"", quoted(password)))
        .collect();
    // Once for the login module, once for the properties file.
    let users = users.replace('\\', "\\\\");
    let pem = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.trim_end().replace('\n', "\\n\\\n")
    };
    let prefix = "listener.name.secure";
    let clients = if secure.client_certificates {
        "required"
    } else {
        "none"
    };
    format!(
        "{prefix}.ssl.keystore.type=PEM
{prefix}.ssl.keystore.certificate.chain={}
{prefix}.ssl.keystore.key={}
{prefix}.ssl.truststore.type=PEM
{prefix}.ssl.truststore.certificates={}
{prefix}.ssl.client.auth={clients}
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
{prefix}.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\"{users};
{prefix}.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";
{prefix}.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
{prefix}.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
",
        pem(&identity.certificate),
        pem(&identity.key),
        pem(&secure.authority.certificate()),
    )
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

trait Succeeds {
    fn output_of_success(&mut self) -> String;
}

impl Succeeds for Command {
    fn output_of_success(&mut self) -> String {
        let output = self.output().expect("java is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{self:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
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
