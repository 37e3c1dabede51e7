//! `${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}`.
//!
//! Connect leaves a placeholder that it cannot resolve in place and goes on with the text; here it
//! is a problem, because a password called `${file:…}` helps nobody. Resolved values never enter a
//! message.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use fancy_regex::Regex;

use super::files::{self, Pairs};
use super::java;
use super::value;

/// Where a provider looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Env,
    File,
    Dir,
    Unknown,
}

#[derive(Debug, Clone)]
struct Provider {
    kind: Kind,
    class: String,
    allowed_paths: Vec<PathBuf>,
    allowed_names: Option<Regex>,
}

impl Provider {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            class: String::new(),
            allowed_paths: Vec::new(),
            allowed_names: None,
        }
    }
}

/// Resolves placeholders.
pub(super) struct Placeholders {
    environment: BTreeMap<String, String>,
    providers: BTreeMap<String, Provider>,
}

impl Placeholders {
    /// `worker` may declare providers and restrict them; the three that work need no declaration.
    pub(super) fn new(environment: &[(String, String)], worker: &Pairs) -> Self {
        let mut providers: BTreeMap<String, Provider> = [
            ("env", Kind::Env),
            ("strimzienv", Kind::Env),
            ("file", Kind::File),
            ("dir", Kind::Dir),
            ("directory", Kind::Dir),
        ]
        .into_iter()
        .map(|(name, kind)| (name.to_owned(), Provider::new(kind)))
        .collect();
        for (property, text) in worker {
            let Some((name, what)) = property
                .strip_prefix("config.providers.")
                .and_then(|rest| rest.split_once('.'))
            else {
                continue;
            };
            let provider = providers
                .entry(name.to_owned())
                .or_insert_with(|| Provider::new(Kind::Unknown));
            match what {
                "class" => {
                    provider.class = text.trim().to_owned();
                    provider.kind = match provider.class.rsplit('.').next() {
                        Some("EnvVarConfigProvider") => Kind::Env,
                        Some("FileConfigProvider") => Kind::File,
                        Some("DirectoryConfigProvider") => Kind::Dir,
                        _ => Kind::Unknown,
                    };
                }
                "param.allowed.paths" => {
                    provider.allowed_paths =
                        value::list(text).into_iter().map(PathBuf::from).collect();
                }
                "param.allowlist.pattern" => provider.allowed_names = java::whole(text).ok(),
                _ => {}
            }
        }
        Self {
            environment: environment.iter().cloned().collect(),
            providers,
        }
    }

    /// `text` with every placeholder replaced; each that cannot be is told of.
    pub(super) fn resolve(&self, text: &str, problems: &mut Vec<String>) -> String {
        let mut resolved = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let (before, from) = rest.split_at(start);
            resolved.push_str(before);
            let Some(end) = from.find('}') else {
                rest = from;
                break;
            };
            let (whole, after) = from.split_at(end + 1);
            match whole[2..end].split_once(':') {
                // Without a colon it is a group of a Java replacement.
                None => resolved.push_str(whole),
                Some((provider, inner)) => match self.look_up(provider, inner) {
                    Ok(found) => resolved.push_str(&found),
                    Err(text) => problems.push(format!("{whole} cannot be resolved: {text}")),
                },
            }
            rest = after;
        }
        resolved.push_str(rest);
        resolved
    }

    fn look_up(&self, name: &str, inner: &str) -> Result<String, String> {
        let Some(provider) = self.providers.get(name) else {
            return Err(format!(
                "no provider is called {name:?}; use env, file or dir"
            ));
        };
        let (path, key) = match inner.split_once(':') {
            Some((path, key)) => (path, key),
            None => ("", inner),
        };
        match provider.kind {
            Kind::Unknown => Err(format!(
                "the provider {} is not offered; mount the secret and use ${{file:…}} or \
                 ${{dir:…}}, or pass it as a variable and use ${{env:…}}",
                provider.class
            )),
            Kind::Env if !path.is_empty() => {
                Err("a variable has no path; write ${env:NAME}".to_owned())
            }
            Kind::Env => self.variable(provider, key),
            Kind::File | Kind::Dir if path.is_empty() => {
                Err("a path is missing; write ${file:/path:key} or ${dir:/path:file}".to_owned())
            }
            Kind::File => from_file(provider, path, key),
            Kind::Dir => from_folder(provider, path, key),
        }
    }

    fn variable(&self, provider: &Provider, name: &str) -> Result<String, String> {
        let allowed = provider
            .allowed_names
            .as_ref()
            .is_none_or(|names| names.is_match(name).unwrap_or(false));
        if !allowed {
            return Err(format!(
                "allowlist.pattern does not allow the variable {name}"
            ));
        }
        self.environment
            .get(name)
            .cloned()
            .ok_or_else(|| format!("the variable {name} is not set"))
    }
}

fn from_file(provider: &Provider, path: &str, key: &str) -> Result<String, String> {
    let bytes = read(provider, Path::new(path))?;
    let mut found = None;
    files::properties(&bytes, |name, value| {
        if name == key {
            found = Some(value);
        }
    })
    .map_err(|line| format!("{path} is not a valid .properties file{line}"))?;
    found.ok_or_else(|| format!("{path} has no key {key:?}"))
}

fn from_folder(provider: &Provider, path: &str, key: &str) -> Result<String, String> {
    let mut parts = Path::new(key).components();
    if !matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    ) {
        return Err(format!("{key:?} is not the name of a file"));
    }
    let file = Path::new(path).join(key);
    String::from_utf8(read(provider, &file)?)
        .map_err(|_| format!("{} is not UTF-8", file.display()))
}

fn read(provider: &Provider, path: &Path) -> Result<Vec<u8>, String> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let allowed = provider.allowed_paths.is_empty()
        || (!climbs
            && provider
                .allowed_paths
                .iter()
                .any(|root| path.starts_with(root)));
    if !allowed {
        return Err(format!("allowed.paths does not allow {}", path.display()));
    }
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(worker: &[(&str, String)]) -> Placeholders {
        let environment = [("DB_PASSWORD".to_owned(), "a$b{}".to_owned())];
        let worker: Pairs = worker
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        Placeholders::new(&environment, &worker)
    }

    fn resolve(placeholders: &Placeholders, text: &str) -> Result<String, Vec<String>> {
        let mut problems = Vec::new();
        let resolved = placeholders.resolve(text, &mut problems);
        if problems.is_empty() {
            Ok(resolved)
        } else {
            Err(problems)
        }
    }

    #[test]
    fn variables_files_and_folders_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        std::fs::write(
            folder.path().join("db.properties"),
            "pass = x:y\\u0041\nother=1",
        )
        .unwrap();
        std::fs::write(folder.path().join("token"), "t\n").unwrap();
        let all = resolver(&[]);
        let text = format!("<${{env:DB_PASSWORD}}|${{file:{path}/db.properties:pass}}|");
        assert_eq!(resolve(&all, &text), Ok("<a$b{}|x:yA|".to_owned()));
        assert_eq!(
            resolve(&all, &format!("${{dir:{path}:token}}")),
            Ok("t\n".to_owned())
        );
    }

    #[test]
    fn groups_of_a_replacement_are_left_alone() {
        let text = "outbox.${routedByValue}.$1 ${ open";
        assert_eq!(resolve(&resolver(&[]), text), Ok(text.to_owned()));
    }

    #[test]
    fn what_cannot_be_resolved_is_told() {
        for text in [
            "${env:NOPE}",
            "${env:/x:DB_PASSWORD}",
            "${file:/no/such/file:key}",
            "${dir:/etc:../passwd}",
            "${vault:secret/db:pass}",
        ] {
            let problems = resolve(&resolver(&[]), text).unwrap_err();
            assert!(problems[0].starts_with(text), "{problems:?}");
        }
    }

    #[test]
    fn restrictions_hold_for_every_spelling() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "t").unwrap();
        let path = folder.path().display().to_string();
        let restricted = resolver(&[
            (
                "config.providers.dir.param.allowed.paths",
                format!("{path}/sub"),
            ),
            (
                "config.providers.env.param.allowlist.pattern",
                "PUBLIC_.*".to_owned(),
            ),
            (
                "config.providers.k8s.class",
                "io.strimzi.kafka.KubernetesSecretConfigProvider".to_owned(),
            ),
            (
                "config.providers.mine.class",
                "org.apache.kafka.common.config.provider.DirectoryConfigProvider".to_owned(),
            ),
        ]);
        for text in [
            format!("${{dir:{path}:token}}"),
            format!("${{dir:{path}/sub/..:token}}"),
            "${env:DB_PASSWORD}".to_owned(),
            "${k8s:ns/secret:key}".to_owned(),
        ] {
            assert!(resolve(&restricted, &text).is_err(), "{text}");
        }
        assert_eq!(
            resolve(&restricted, &format!("${{mine:{path}:token}}")),
            Ok("t".to_owned())
        );
    }
}
