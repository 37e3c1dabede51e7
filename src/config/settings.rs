//! The properties of one file (or of the worker) with their placeholders resolved, and typed
//! access to them. Defaults come from the property table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::properties::{Family, Kind, Property};
use super::validated::{NameFilter, Pattern};
use super::value;

/// One property as it stands in a file.
#[derive(Clone)]
pub(super) struct Setting {
    /// Its name.
    pub(super) name: String,
    /// Its value, placeholders resolved; never to be printed.
    pub(super) value: String,
    /// Its value as written, safe to quote unless the property is a secret.
    pub(super) written: String,
    /// File, or `environment`.
    pub(super) origin: String,
}

impl Setting {
    /// A setting without placeholders.
    pub(super) fn plain(origin: &str, name: String, value: String) -> Self {
        Self {
            name,
            written: value.clone(),
            value,
            origin: origin.to_owned(),
        }
    }

    /// The value as an error may quote it.
    pub(super) fn shown(&self, property: &Property) -> String {
        if property.kind == Kind::Secret {
            return "***".to_owned();
        }
        format!("{:?}", self.written)
    }
}

/// Only the name: the value may be a secret.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The properties of one file, or of the worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    origin: String,
    by_name: BTreeMap<String, Setting>,
}

impl Settings {
    /// No properties yet.
    pub(super) fn new(origin: &str) -> Self {
        Self {
            origin: origin.to_owned(),
            by_name: BTreeMap::new(),
        }
    }

    /// Adds a setting, replacing one of the same name.
    pub(super) fn put(&mut self, setting: Setting) {
        self.by_name.insert(setting.name.clone(), setting);
    }

    /// Where these properties come from.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Where `name` comes from.
    pub(super) fn origin_of(&self, name: &str) -> &str {
        self.by_name
            .get(name)
            .map_or(&self.origin, |setting| &setting.origin)
    }

    /// All settings, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.by_name.values()
    }

    /// The setting called `name`.
    pub(super) fn setting(&self, name: &str) -> Option<&Setting> {
        self.by_name.get(name)
    }

    /// The value of `name`, if it is there at all.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|setting| setting.value.as_str())
    }

    /// The settings below `prefix`, each with the rest of its name.
    pub(super) fn below<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Setting)> {
        self.by_name
            .values()
            .filter_map(move |setting| Some((setting.name.strip_prefix(prefix)?, setting)))
    }

    /// Typed access to the properties of `family` below `prefix`.
    pub(super) fn view(&self, prefix: &str, family: &'static Family) -> View<'_> {
        View {
            settings: self,
            prefix: prefix.to_owned(),
            family,
        }
    }
}

/// Typed access. A value that does not parse was reported when the file was checked; here its
/// default stands in, so that reading goes on and finds the other problems.
pub(super) struct View<'a> {
    settings: &'a Settings,
    prefix: String,
    family: &'static Family,
}

impl View<'_> {
    /// The full name of `name`.
    pub(super) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The value as configured.
    pub(super) fn configured(&self, name: &str) -> Option<&str> {
        self.settings.get(&self.full(name))
    }

    fn property(&self, name: &str) -> Option<&'static Property> {
        let property = self.family.find(name);
        debug_assert!(property.is_some(), "{name} is missing from the table");
        property
    }

    fn default(&self, name: &str) -> &'static str {
        self.property(name).map_or("", |property| property.default)
    }

    /// The value, or the default; empty when there is neither.
    pub(super) fn text(&self, name: &str) -> String {
        self.configured(name)
            .unwrap_or_else(|| self.default(name))
            .to_owned()
    }

    /// The value, or the default, unless blank.
    pub(super) fn optional(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.trim().is_empty())
    }

    fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.configured(name)
            .and_then(|text| parse(text).ok())
            .or_else(|| parse(self.default(name)).ok())
    }

    /// A flag.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.parsed(name, value::flag).unwrap_or_default()
    }

    /// A number.
    pub(super) fn number<N: TryFrom<i64> + Default>(&self, name: &str) -> N {
        let bounds = match self.property(name).map(|property| property.kind) {
            Some(Kind::Number(min, max)) => (min, max),
            _ => (i64::MIN, i64::MAX),
        };
        self.parsed(name, |text| value::number(text, bounds.0, bounds.1))
            .and_then(|number| N::try_from(number).ok())
            .unwrap_or_default()
    }

    /// A duration.
    pub(super) fn millis(&self, name: &str) -> Duration {
        self.parsed(name, |text| value::millis(text, 0))
            .unwrap_or_default()
    }

    /// The allowed word, as the table spells it; empty when there is none.
    pub(super) fn choice(&self, name: &str) -> &'static str {
        match self.property(name).map(|property| property.kind) {
            Some(Kind::Choice(allowed)) => self
                .parsed(name, |text| value::choice(text, allowed))
                .unwrap_or_default(),
            _ => "",
        }
    }

    /// A list.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        value::list(&self.text(name))
    }

    /// A list of expressions.
    pub(super) fn patterns(&self, name: &str) -> Vec<Pattern> {
        self.parsed(name, value::patterns).unwrap_or_default()
    }

    /// `<stem>.include.list` and `<stem>.exclude.list`.
    pub(super) fn filter(&self, stem: &str) -> NameFilter {
        NameFilter {
            include: self.patterns(&format!("{stem}.include.list")),
            exclude: self.patterns(&format!("{stem}.exclude.list")),
        }
    }
}
