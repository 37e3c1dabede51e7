//! What a broker's file holds.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

use super::super::ports;
use super::super::tls::Identity;
use super::{Node, Options, PASSWORD, Secure, USER, java};

/// Writes the nodes' files and formats their storage.
pub(super) fn write(nodes: &[Node], options: &Options<'_>) {
    let cluster = "d2FscG9zdC10ZXN0LWNsdQ";
    let controllers: Vec<u16> = nodes.iter().map(|_| ports::free()).collect();
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
    let host = options.host.unwrap_or("127.0.0.1");
    let mut advertised = format!("PLAINTEXT://{host}:{}", node.advertised);
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
    // Once for the login module, once for the properties file, which is not UTF-8.
    let escaped = |c: char| match c {
        '\\' => "\\\\".to_owned(),
        c if c.is_ascii() => c.to_string(),
        c => format!("\\u{:04x}", u32::from(c)),
    };
    let users: String = users.chars().map(escaped).collect();
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
