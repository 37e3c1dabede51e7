//! Who may do what, by Kafka's own tools.

use std::process::Command;

use super::{Kafka, USER, java};

impl Kafka {
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

    /// Gives `user` a password for one of the `SCRAM` mechanisms.
    pub(crate) fn set_password(&self, mechanism: &str, user: &str, password: &str) {
        java()
            .arg("kafka.admin.ConfigCommand")
            .args(["--bootstrap-server", &self.bootstrap(), "--alter"])
            .args(["--entity-type", "users", "--entity-name", user])
            .args([
                "--add-config",
                &format!("{mechanism}=[password={password}]"),
            ])
            .output_of_success();
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
