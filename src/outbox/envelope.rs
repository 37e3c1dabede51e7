//! Schemas of envelopes, remembered as Debezium remembers them: by the payload's schema alone, or
//! by the version alone. So the first event fixes the name for all that follow.

use std::collections::HashMap;
use std::sync::Arc;

use super::problem::Problem;
use super::schema::{Field, Kind, Schema};

/// Payload schemas that are remembered; beyond that many all are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// Name and members of an envelope.
type Layout<'n> = (String, Vec<(&'n str, Arc<Schema>)>);

/// The envelopes of one router.
#[derive(Debug, Default)]
pub(super) struct Envelopes {
    by_payload: HashMap<Box<str>, Arc<Schema>>,
    by_version: HashMap<Option<i32>, Arc<Schema>>,
    /// The payload schema of the event before, and its envelope: mostly the one wanted again.
    last: Option<(Arc<Schema>, Arc<Schema>)>,
}

impl Envelopes {
    /// The envelope of a payload; `layout` is asked when there is none yet. `version` is given when
    /// a version column is configured.
    pub(super) fn schema<'n>(
        &mut self,
        payload: &Arc<Schema>,
        version: Option<Option<i32>>,
        layout: impl FnOnce() -> Result<Layout<'n>, Problem>,
    ) -> Result<Arc<Schema>, Problem> {
        let Some(version) = version else {
            return self.by_payload(payload, layout);
        };
        if let Some(known) = self.by_version.get(&version) {
            return Ok(Arc::clone(known));
        }
        let schema = build(layout()?, version)?;
        if self.by_version.len() >= REMEMBERED_MAX {
            self.by_version.clear();
        }
        self.by_version.insert(version, Arc::clone(&schema));
        Ok(schema)
    }

    fn by_payload<'n>(
        &mut self,
        payload: &Arc<Schema>,
        layout: impl FnOnce() -> Result<Layout<'n>, Problem>,
    ) -> Result<Arc<Schema>, Problem> {
        if let Some((last, envelope)) = &self.last
            && Arc::ptr_eq(last, payload)
        {
            return Ok(Arc::clone(envelope));
        }
        let identity = payload.json(false);
        let envelope = match self.by_payload.get(identity) {
            Some(known) => Arc::clone(known),
            None => {
                let schema = build(layout()?, None)?;
                if self.by_payload.len() >= REMEMBERED_MAX {
                    self.by_payload.clear();
                }
                self.by_payload.insert(identity.into(), Arc::clone(&schema));
                schema
            }
        };
        self.last = Some((Arc::clone(payload), Arc::clone(&envelope)));
        Ok(envelope)
    }
}

fn build((name, members): Layout<'_>, version: Option<i32>) -> Result<Arc<Schema>, Problem> {
    let mut fields: Vec<Field> = Vec::with_capacity(members.len());
    for (name, schema) in members {
        if fields.iter().any(|field| *field.name == *name) {
            return Err(Problem::new(format!(
                "two members of the envelope are called {name:?}; give one another alias in \
                 table.fields.additional.placement"
            )));
        }
        fields.push(Field {
            name: name.into(),
            schema,
        });
    }
    let mut schema = Schema::new(Kind::Struct(fields));
    schema.name = Some(name.into());
    schema.version = version;
    Ok(Arc::new(schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_names_the_envelope_of_a_payload_schema() {
        let mut envelopes = Envelopes::default();
        let payload = Arc::new(Schema::new(Kind::String));
        let other = Arc::new(Schema::new(Kind::String));
        let mut name = |payload: &Arc<Schema>, version, name: &str| {
            let layout = || Ok((name.to_owned(), vec![("payload", Arc::clone(payload))]));
            let schema = envelopes.schema(payload, version, layout).unwrap();
            (schema.name.clone().unwrap().into_owned(), schema.version)
        };
        assert_eq!(name(&payload, None, "a"), ("a".to_owned(), None));
        assert_eq!(name(&payload, None, "b"), ("a".to_owned(), None));
        assert_eq!(name(&other, None, "c"), ("a".to_owned(), None));
        let optional = Arc::new(Schema::optional(Kind::String));
        assert_eq!(name(&optional, None, "d"), ("d".to_owned(), None));
        assert_eq!(
            name(&payload, Some(Some(3)), "e"),
            ("e".to_owned(), Some(3))
        );
        assert_eq!(
            name(&optional, Some(Some(3)), "f"),
            ("e".to_owned(), Some(3))
        );
    }

    #[test]
    fn members_have_names_of_their_own() {
        let payload = Arc::new(Schema::new(Kind::String));
        let layout = || {
            Ok((
                "n".to_owned(),
                vec![
                    ("payload", Arc::clone(&payload)),
                    ("payload", Arc::clone(&payload)),
                ],
            ))
        };
        assert!(Envelopes::default().schema(&payload, None, layout).is_err());
    }
}
