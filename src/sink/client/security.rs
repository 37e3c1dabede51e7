//! TLS and SASL: Java's `security.protocol`, `ssl.*` and `sasl.*`.

use super::{Translation, jaas};
use crate::config::KafkaProperties;

/// Whether this file translates `name`.
pub(super) fn owns(name: &str) -> bool {
    name == "security.protocol"
        || name == "security.providers"
        || (name.starts_with("ssl.") && !LIBRDKAFKA_ONLY.contains(&name))
        || (name.starts_with("sasl.") && !LIBRDKAFKA_ONLY.contains(&name))
}

/// Names of librdkafka's own that Java does not have: they pass through unchanged.
const LIBRDKAFKA_ONLY: &[&str] = &[
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
];

/// Translates every property this file owns.
pub(super) fn translate(java: &KafkaProperties, out: &mut Translation) {
    let protocol = java
        .get("security.protocol")
        .map_or("PLAINTEXT".to_owned(), |value| {
            value.trim().to_ascii_uppercase()
        });
    if !matches!(
        protocol.as_str(),
        "PLAINTEXT" | "SSL" | "SASL_PLAINTEXT" | "SASL_SSL"
    ) {
        out.problem(format!(
            "security.protocol={protocol} is unknown; use PLAINTEXT, SSL, SASL_PLAINTEXT or \
             SASL_SSL"
        ));
        return;
    }
    out.set("security.protocol", "security.protocol", &protocol);
    if protocol.ends_with("SSL") {
        tls(java, out);
    }
    if protocol.starts_with("SASL") {
        sasl(java, out);
    }
}

fn tls(java: &KafkaProperties, out: &mut Translation) {
    truststore(java, out);
    keystore(java, out);
    if let Some(algorithm) = java.get("ssl.endpoint.identification.algorithm") {
        // Java switches the check off with an empty value.
        let algorithm = match algorithm.trim() {
            "" => "none",
            other => other,
        };
        out.set(
            "ssl.endpoint.identification.algorithm",
            "ssl.endpoint.identification.algorithm",
            &algorithm.to_ascii_lowercase(),
        );
    }
    if let Some(suites) = java.get("ssl.cipher.suites").filter(|v| !v.is_empty()) {
        if suites.contains("_WITH_") || suites.contains("TLS_") {
            out.notice(
                "ssl.cipher.suites has no effect: its names are Java's; give OpenSSL's names"
                    .to_owned(),
            );
        } else {
            out.set("ssl.cipher.suites", "ssl.cipher.suites", suites);
        }
    }
    if java
        .get("ssl.engine.factory.class")
        .is_some_and(|v| !v.is_empty())
    {
        out.problem("ssl.engine.factory.class names a Java class and cannot be used".to_owned());
    }
}

fn truststore(java: &KafkaProperties, out: &mut Translation) {
    let given = |name: &str| java.get(name).filter(|value| !value.is_empty());
    if given("ssl.ca.location").is_some() || given("ssl.ca.pem").is_some() {
        return;
    }
    if let Some(pem) = given("ssl.truststore.certificates") {
        out.set("ssl.ca.pem", "ssl.truststore.certificates", pem);
        return;
    }
    let Some(location) = given("ssl.truststore.location") else {
        // OpenSSL is linked in and knows no folder of this machine by itself.
        out.set("ssl.ca.location", "", "probe");
        return;
    };
    if is_pem(given("ssl.truststore.type"), location) {
        out.set("ssl.ca.location", "ssl.truststore.location", location);
    } else {
        out.problem(format!(
            "ssl.truststore.location={location} is not PEM; export it (keytool -exportcert -rfc \
             -keystore {location}, or openssl pkcs12 -nokeys -in {location}) and set \
             ssl.truststore.type=PEM"
        ));
    }
}

fn keystore(java: &KafkaProperties, out: &mut Translation) {
    let given = |name: &str| java.get(name).filter(|value| !value.is_empty());
    if let Some(password) = given("ssl.key.password") {
        out.set("ssl.key.password", "ssl.key.password", password);
    }
    match (
        given("ssl.keystore.key"),
        given("ssl.keystore.certificate.chain"),
    ) {
        (Some(key), Some(chain)) => {
            out.set("ssl.key.pem", "ssl.keystore.key", key);
            out.set(
                "ssl.certificate.pem",
                "ssl.keystore.certificate.chain",
                chain,
            );
            return;
        }
        (None, None) => {}
        _ => out.problem(
            "ssl.keystore.key and ssl.keystore.certificate.chain must be given together".to_owned(),
        ),
    }
    let Some(location) = given("ssl.keystore.location") else {
        return;
    };
    let kind = given("ssl.keystore.type");
    if is_pem(kind, location) {
        // One file with key and chain.
        out.set("ssl.key.location", "ssl.keystore.location", location);
        out.set(
            "ssl.certificate.location",
            "ssl.keystore.location",
            location,
        );
    } else if is_pkcs12(kind, location) {
        out.set("ssl.keystore.location", "ssl.keystore.location", location);
        if let Some(password) = given("ssl.keystore.password") {
            out.set("ssl.keystore.password", "ssl.keystore.password", password);
        }
    } else {
        out.problem(format!(
            "ssl.keystore.location={location} is a Java key store; convert it (keytool \
             -importkeystore -srckeystore {location} -deststoretype PKCS12 -destkeystore \
             keystore.p12) and set ssl.keystore.type=PKCS12, or use PEM"
        ));
    }
}

fn is_pem(kind: Option<&str>, location: &str) -> bool {
    match kind {
        Some(kind) => kind.eq_ignore_ascii_case("PEM"),
        None => has_ending(location, &["pem", "crt", "cer"]),
    }
}

fn is_pkcs12(kind: Option<&str>, location: &str) -> bool {
    match kind {
        Some(kind) => kind.eq_ignore_ascii_case("PKCS12"),
        None => has_ending(location, &["p12", "pfx", "pkcs12"]),
    }
}

fn has_ending(location: &str, endings: &[&str]) -> bool {
    std::path::Path::new(location)
        .extension()
        .and_then(|ending| ending.to_str())
        .is_some_and(|ending| {
            endings
                .iter()
                .any(|known| ending.eq_ignore_ascii_case(known))
        })
}

fn sasl(java: &KafkaProperties, out: &mut Translation) {
    let mechanism = java
        .get("sasl.mechanism")
        .or_else(|| java.get("sasl.mechanisms"))
        .unwrap_or("GSSAPI")
        .trim()
        .to_ascii_uppercase();
    match mechanism.as_str() {
        "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" | "OAUTHBEARER" => {
            out.set("sasl.mechanism", "sasl.mechanism", &mechanism);
        }
        "GSSAPI" => {
            out.problem(
                "sasl.mechanism=GSSAPI (Java's default) is not in this build; use PLAIN, \
                 SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
                    .to_owned(),
            );
            return;
        }
        other => {
            out.problem(format!(
                "sasl.mechanism={other} is unknown; use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or \
                 OAUTHBEARER"
            ));
            return;
        }
    }
    let login = match java.get("sasl.jaas.config").map(jaas::parse) {
        None => None,
        Some(Ok(login)) => Some(login),
        Some(Err(problem)) => {
            out.problem(format!("sasl.jaas.config {problem}"));
            return;
        }
    };
    if mechanism == "OAUTHBEARER" {
        oauth(java, login.as_ref(), out);
    } else {
        password(java, login.as_ref(), &mechanism, out);
    }
}

fn password(
    java: &KafkaProperties,
    login: Option<&jaas::Login>,
    mechanism: &str,
    out: &mut Translation,
) {
    let Some(login) = login else {
        if java.get("sasl.username").is_none() || java.get("sasl.password").is_none() {
            out.problem(format!(
                "sasl.jaas.config is missing; sasl.mechanism={mechanism} needs user and password"
            ));
        }
        return;
    };
    let expected = if mechanism == "PLAIN" {
        "PlainLoginModule"
    } else {
        "ScramLoginModule"
    };
    if login.module != expected {
        out.problem(format!(
            "sasl.jaas.config names {}, but sasl.mechanism={mechanism} needs {expected}",
            login.module
        ));
    }
    if login.option("tokenauth") == Some("true") {
        out.problem(
            "sasl.jaas.config asks for tokenauth; delegation tokens are not supported".to_owned(),
        );
    }
    match (login.option("username"), login.option("password")) {
        (Some(user), Some(secret)) => {
            out.set("sasl.username", "sasl.jaas.config", user);
            out.set("sasl.password", "sasl.jaas.config", secret);
        }
        _ => out.problem("sasl.jaas.config must give username and password".to_owned()),
    }
}

/// Java's and Strimzi's login handlers for OpenID Connect, by their simple names.
const OIDC_HANDLERS: [&str; 2] = [
    "OAuthBearerLoginCallbackHandler",
    "JaasClientOauthLoginCallbackHandler",
];

fn oauth(java: &KafkaProperties, login: Option<&jaas::Login>, out: &mut Translation) {
    let Some(login) = login else {
        if java.get("sasl.oauthbearer.method").is_none() {
            out.problem(
                "sasl.jaas.config is missing; sasl.mechanism=OAUTHBEARER needs client id and secret"
                    .to_owned(),
            );
        }
        pass_endpoint(java, None, out);
        return;
    };
    let handler = java
        .get("sasl.login.callback.handler.class")
        .map(|class| class.rsplit('.').next().unwrap_or(class).trim());
    match handler {
        Some(handler) if OIDC_HANDLERS.contains(&handler) => oidc(java, login, out),
        Some(other) => out.problem(format!(
            "sasl.login.callback.handler.class={other} is a Java class that is not known here; \
             OpenID Connect is supported through OAuthBearerLoginCallbackHandler"
        )),
        None => match login.option("unsecuredLoginStringClaim_sub") {
            Some(subject) => {
                out.set(
                    "enable.sasl.oauthbearer.unsecure.jwt",
                    "sasl.jaas.config",
                    "true",
                );
                let principal = format!("principal={subject}");
                out.set("sasl.oauthbearer.config", "sasl.jaas.config", &principal);
            }
            None => oidc(java, login, out),
        },
    }
}

fn oidc(java: &KafkaProperties, login: &jaas::Login, out: &mut Translation) {
    let option = |names: &[&str]| names.iter().find_map(|name| login.option(name));
    out.set("sasl.oauthbearer.method", "sasl.jaas.config", "oidc");
    match (
        option(&["clientId", "client_id", "oauth.client.id"]),
        option(&["clientSecret", "client_secret", "oauth.client.secret"]),
    ) {
        (Some(id), Some(secret)) => {
            out.set("sasl.oauthbearer.client.id", "sasl.jaas.config", id);
            out.set("sasl.oauthbearer.client.secret", "sasl.jaas.config", secret);
        }
        _ => out.problem("sasl.jaas.config must give clientId and clientSecret".to_owned()),
    }
    if let Some(scope) = option(&["scope", "oauth.scope"]) {
        out.set("sasl.oauthbearer.scope", "sasl.jaas.config", scope);
    }
    let extensions: Vec<String> = login
        .options_under("extension_")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !extensions.is_empty() {
        let extensions = extensions.join(",");
        out.set(
            "sasl.oauthbearer.extensions",
            "sasl.jaas.config",
            &extensions,
        );
    }
    pass_endpoint(java, login.option("oauth.token.endpoint.uri"), out);
}

fn pass_endpoint(java: &KafkaProperties, from_login: Option<&str>, out: &mut Translation) {
    let name = "sasl.oauthbearer.token.endpoint.url";
    match java.get(name).or(from_login) {
        Some(url) => out.set(name, name, url),
        None => out.problem(format!("{name} is missing")),
    }
    let name = "sasl.oauthbearer.sub.claim.name";
    if let Some(claim) = java.get(name) {
        out.set(name, name, claim);
    }
    // The token endpoint's certificate is checked against the machine's authorities.
    out.set("https.ca.location", "", "probe");
}
