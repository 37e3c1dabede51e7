//! The converters of a connector, worker defaults applied as Connect applies them.

use super::check::CONVERTERS;
use super::classes;
use super::problem::Findings;
use super::properties::{CONVERTER, FRAMEWORK};
use super::settings::Settings;
use super::validated::{Converter, Converters};

/// Reads the three converters.
pub(super) fn read(connector: &Settings, worker: &Settings, findings: &mut Findings) -> Converters {
    let [key, value, header] = CONVERTERS.map(|name| one(connector, worker, name, findings));
    Converters { key, value, header }
}

/// A connector that names the class brings its own options; one that does not gets the worker's
/// class with the worker's options. The two are never mixed.
fn one(connector: &Settings, worker: &Settings, name: &str, findings: &mut Findings) -> Converter {
    let default = FRAMEWORK.find(name).map_or("", |property| property.default);
    let settings = if connector.get(name).is_some() {
        connector
    } else {
        if let Some((_, stray)) = connector.below(&format!("{name}.")).next() {
            findings.notice(
                connector.origin(),
                &stray.name,
                format!("has no effect: options of a converter count only beside {name}"),
            );
        }
        worker
    };
    let class = settings.get(name).unwrap_or(default);
    let origin = settings.origin_of(name).to_owned();
    let header = name == "header.converter";
    let converter = build(settings, name, class, &origin, findings);
    match converter {
        Some(Converter::SimpleHeader) if !header => {
            findings.problem(&origin, name, "SimpleHeaderConverter converts headers only");
            Converter::String
        }
        Some(converter) => converter,
        None => Converter::String,
    }
}

fn build(
    settings: &Settings,
    name: &str,
    class: &str,
    origin: &str,
    findings: &mut Findings,
) -> Option<Converter> {
    let view = settings.view(&format!("{name}."), &CONVERTER);
    match classes::converter(class) {
        Ok(Converter::Json(mut json)) => {
            json.schemas = view.flag("schemas.enable");
            json.decimal_numeric = view.choice("decimal.format") == "NUMERIC";
            json.null_to_default = view.flag("replace.null.with.default");
            Some(Converter::Json(json))
        }
        Ok(Converter::BinaryData(_)) => {
            let delegate = view.optional("delegate.converter.type");
            let below = view.full("delegate.converter.type");
            let delegate = match delegate {
                Some(class) => Some(Box::new(build(settings, &below, &class, origin, findings)?)),
                None => None,
            };
            Some(Converter::BinaryData(delegate))
        }
        Ok(converter) => Some(converter),
        Err(refusal) => {
            findings.problem(origin, name, refusal);
            None
        }
    }
}
