//! `database.hostname`, `database.port` and `database.target.session.attrs`: which servers may be
//! the one.

use std::fmt;
use std::net::SocketAddr;

use super::problem::Findings;
use super::properties::{DATABASE, OWN};
use super::settings::Settings;
use super::validated::Connector;
use super::value;

/// One server of `database.hostname`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address, or the folder of a Unix socket (starts with `/`).
    pub name: String,
    /// Port.
    pub port: u16,
    /// Where the name led when an attempt began. All connections of the attempt go there: a name
    /// can lead to another server a moment later.
    pub address: Option<SocketAddr>,
}

impl Host {
    /// A server whose address is not known yet.
    pub fn new(name: impl Into<String>, port: u16) -> Self {
        Self {
            name: name.into(),
            port,
            address: None,
        }
    }

    /// Whether it is the folder of a Unix socket.
    pub fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }
}

/// `host:port`, `[host]:port` for an IPv6 address, or the path of the socket.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port, .. } = self;
        if self.is_socket() {
            write!(f, "{name}/.s.PGSQL.{port}")
        } else if name.contains(':') {
            write!(f, "[{name}]:{port}")
        } else {
            write!(f, "{name}:{port}")
        }
    }
}

impl Connector {
    /// The same connector with only this server to go to.
    #[must_use]
    pub fn at(&self, host: &Host) -> Self {
        let mut pinned = self.clone();
        pinned.database.hosts = vec![host.clone()];
        pinned
    }
}

/// libpq's `target_session_attrs`: which of several servers will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionTarget {
    /// The first that lets us in.
    Any,
    /// One that takes writes.
    ReadWrite,
    /// One that takes none.
    ReadOnly,
    /// One that is no standby.
    Primary,
    /// A standby.
    Standby,
    /// A standby, or else any.
    PreferStandby,
}

impl SessionTarget {
    /// libpq's word.
    pub fn word(self) -> &'static str {
        match self {
            SessionTarget::Any => "any",
            SessionTarget::ReadWrite => "read-write",
            SessionTarget::ReadOnly => "read-only",
            SessionTarget::Primary => "primary",
            SessionTarget::Standby => "standby",
            SessionTarget::PreferStandby => "prefer-standby",
        }
    }
}

/// The servers in the order in which they are tried.
pub(super) fn read(settings: &Settings, findings: &mut Findings) -> Vec<Host> {
    let view = settings.view("", &DATABASE);
    let names = view.list("database.hostname");
    let ports = value::ports(&view.text("database.port")).unwrap_or_default();
    if ports.len() > 1 && ports.len() != names.len() {
        findings.problem(
            settings.origin(),
            "database.port",
            format!(
                "lists {} ports for {} hosts; give one for all, or one for each",
                ports.len(),
                names.len()
            ),
        );
    }
    let mut hosts = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let port = ports.get(index).or(ports.first()).copied();
        match host_and_port(name) {
            // A port that does not parse was reported when the file was checked.
            Ok((name, own)) => hosts.push(Host::new(name, own.or(port).unwrap_or_default())),
            Err(expected) => findings.problem(
                settings.origin(),
                "database.hostname",
                format!("{name:?} is not valid: {expected}"),
            ),
        }
    }
    hosts
}

/// Which of them will do. A slot lives on one server and moves with its primary, so with several
/// hosts only a primary does unless the file says otherwise.
pub(super) fn target(settings: &Settings, hosts: &[Host]) -> SessionTarget {
    match settings
        .view("", &OWN)
        .choice("database.target.session.attrs")
    {
        "any" => SessionTarget::Any,
        "read-write" => SessionTarget::ReadWrite,
        "read-only" => SessionTarget::ReadOnly,
        "primary" => SessionTarget::Primary,
        "standby" => SessionTarget::Standby,
        "prefer-standby" => SessionTarget::PreferStandby,
        _ if hosts.len() > 1 => SessionTarget::Primary,
        _ => SessionTarget::Any,
    }
}

/// `host`, `host:port`, `[address]` or `[address]:port`; an IPv6 address without brackets has no
/// port of its own.
fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (name, port) = if text.starts_with('/') {
        (text, None)
    } else if let Some(rest) = text.strip_prefix('[') {
        match rest.split_once(']') {
            Some((name, "")) => (name, None),
            Some((name, port)) if port.starts_with(':') => (name, Some(&port[1..])),
            _ => return Err("[address]:port is expected".to_owned()),
        }
    } else {
        match text.split_once(':') {
            Some((name, port)) if !port.contains(':') => (name, Some(port)),
            _ => (text, None),
        }
    };
    if name.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = port.map(value::port).transpose()?;
    Ok((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_bring_its_port() {
        for (text, name, port) in [
            ("db", "db", None),
            ("db:5433", "db", Some(5433)),
            ("10.0.0.1:1", "10.0.0.1", Some(1)),
            ("::1", "::1", None),
            ("[::1]", "::1", None),
            ("[::1]:5433", "::1", Some(5433)),
            ("/run/postgresql", "/run/postgresql", None),
        ] {
            assert_eq!(host_and_port(text), Ok((name, port)), "{text}");
        }
        for text in ["db:", "db:x", "db:0", "db:65536", ":5432", "[::1", "[::1]5"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_are_shown_as_they_are_reached() {
        for (name, shown) in [
            ("db", "db:5432"),
            ("::1", "[::1]:5432"),
            ("/run/pg", "/run/pg/.s.PGSQL.5432"),
        ] {
            assert_eq!(Host::new(name, 5432).to_string(), shown);
        }
    }
}
