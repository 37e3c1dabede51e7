//! What HeaderFrom, ReplaceField and ExtractField do to the members of a struct.

use std::borrow::Cow;
use std::sync::Arc;

use super::draft::{DraftHeader, Part};
use super::problem::Problem;
use super::schema::{Field, Kind, Schema};
use super::value::{self, Struct, Value};
use crate::config::MemberAction;

/// One of the three, for a key or a value.
#[derive(Debug)]
pub(super) struct Members {
    action: MemberAction,
    null_to_default: bool,
}

impl Members {
    pub(super) fn new(action: &MemberAction, null_to_default: bool) -> Self {
        Self {
            action: action.clone(),
            null_to_default,
        }
    }

    /// The class's name.
    pub(super) fn label(&self) -> &'static str {
        match self.action {
            MemberAction::HeaderFrom { .. } => "HeaderFrom",
            MemberAction::ReplaceField { .. } => "ReplaceField",
            MemberAction::ExtractField(_) => "ExtractField",
        }
    }

    /// Changes a key or a value; HeaderFrom adds to the headers.
    pub(super) fn apply<'a>(
        &'a self,
        part: &mut Part<'a>,
        headers: &mut Vec<DraftHeader<'a>>,
    ) -> Result<(), Problem> {
        let Value::Struct(members) = &part.value else {
            return self.apply_to_other(part);
        };
        match &self.action {
            MemberAction::HeaderFrom {
                fields,
                headers: names,
                remove,
            } => {
                for (field, name) in fields.iter().zip(names) {
                    headers.push((Cow::Borrowed(name), self.member(members, field)?));
                }
                if *remove {
                    *part = of_struct(without(members, fields));
                }
            }
            MemberAction::ReplaceField { .. } => *part = of_struct(self.replace(members)?),
            MemberAction::ExtractField(field) => *part = self.member(members, field)?,
        }
        Ok(())
    }

    /// What is no struct passes only where there is nothing to look into.
    fn apply_to_other(&self, part: &mut Part<'_>) -> Result<(), Problem> {
        match (&self.action, &part.value, part.schema.as_deref()) {
            (MemberAction::ReplaceField { .. }, Value::Null, _)
            | (MemberAction::ExtractField(_), Value::Null, None) => Ok(()),
            (MemberAction::ExtractField(name), Value::Null, Some(schema))
                if matches!(schema.kind, Kind::Struct(_)) =>
            {
                let field = schema.fields().iter().find(|field| *field.name == **name);
                let field = field.ok_or_else(|| self.no_such(name))?;
                part.schema = Some(Arc::clone(&field.schema));
                Ok(())
            }
            _ => Err(Problem::new(format!(
                "{} finds no struct to take members from; place columns in the envelope",
                self.label()
            ))),
        }
    }

    /// ReplaceField on a struct.
    fn replace<'a>(&self, members: &Struct<'a>) -> Result<Struct<'a>, Problem> {
        let mut fields: Vec<Field> = Vec::new();
        let mut values = Vec::new();
        for field in members
            .schema
            .fields()
            .iter()
            .filter(|field| self.keeps(&field.name))
        {
            let name = self
                .renamed(&field.name)
                .map_or_else(|| Arc::clone(&field.name), Arc::from);
            if fields.iter().any(|other| other.name == name) {
                return Err(Problem::column(
                    &name,
                    "ReplaceField gives this name to two members",
                ));
            }
            // Looked up by the way back, even when no rename led here.
            let old = self.name_before(&name);
            let part = self.member(members, old)?;
            if !value::fits(&field.schema, &part.value) {
                return Err(Problem::column(old, "ReplaceField mixes up two members"));
            }
            fields.push(Field {
                name: Arc::clone(&name),
                schema: Arc::clone(&field.schema),
            });
            values.push(part.value);
        }
        Ok(Struct {
            schema: like(&members.schema, fields),
            values,
        })
    }

    fn keeps(&self, name: &str) -> bool {
        let MemberAction::ReplaceField {
            include, exclude, ..
        } = &self.action
        else {
            return true;
        };
        let names = |list: &[String]| list.iter().any(|other| other == name);
        !names(exclude) && (include.is_empty() || names(include))
    }

    fn renames(&self) -> &[(String, String)] {
        match &self.action {
            MemberAction::ReplaceField { renames, .. } => renames,
            _ => &[],
        }
    }

    fn renamed(&self, name: &str) -> Option<&str> {
        let rename = self.renames().iter().find(|(old, _)| old == name);
        rename.map(|(_, new)| new.as_str())
    }

    fn name_before<'n>(&'n self, name: &'n str) -> &'n str {
        let rename = self.renames().iter().find(|(_, new)| new == name);
        rename.map_or(name, |(old, _)| old)
    }

    /// A member with, where asked for, its default in place of NULL.
    fn member<'a>(&self, members: &Struct<'a>, name: &str) -> Result<Part<'a>, Problem> {
        let found = members.members().find(|(other, _, _)| *other == name);
        let (_, schema, value) = found.ok_or_else(|| self.no_such(name))?;
        let value = match (value, &schema.default) {
            (Value::Null, Some(default)) if self.null_to_default => default.clone(),
            (value, _) => value.clone(),
        };
        Ok(Part {
            schema: Some(Arc::clone(schema)),
            value,
        })
    }

    fn no_such(&self, name: &str) -> Problem {
        Problem::column(name, format!("{} finds no such member", self.label()))
    }
}

fn without<'a>(members: &Struct<'a>, names: &[String]) -> Struct<'a> {
    let (fields, values) = members
        .schema
        .fields()
        .iter()
        .zip(&members.values)
        .filter(|(field, _)| names.iter().all(|name| **name != *field.name))
        .map(|(field, value)| (field.clone(), value.clone()))
        .unzip();
    Struct {
        schema: like(&members.schema, fields),
        values,
    }
}

fn of_struct(members: Struct<'_>) -> Part<'_> {
    Part {
        schema: Some(Arc::clone(&members.schema)),
        value: Value::Struct(members),
    }
}

/// A required struct with other members, all else alike.
fn like(schema: &Schema, fields: Vec<Field>) -> Arc<Schema> {
    let mut new = Schema::new(Kind::Struct(fields));
    new.name.clone_from(&schema.name);
    new.version = schema.version;
    new.doc = schema.doc;
    new.parameters.clone_from(&schema.parameters);
    Arc::new(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Part<'static> {
        let field = |name: &str, schema: Schema| Field {
            name: name.into(),
            schema: Arc::new(schema),
        };
        let mut defaulting = Schema::optional(Kind::Int32);
        defaulting.default = Some(Value::Int32(7));
        let schema = Schema::new(Kind::Struct(vec![
            field("a", Schema::new(Kind::Int32)),
            field("b", defaulting),
        ]));
        of_struct(Struct {
            schema: Arc::new(schema),
            values: vec![Value::Int32(1), Value::Null],
        })
    }

    fn applied(action: &Members, part: Part<'static>) -> Result<String, Problem> {
        let mut part = part;
        let mut headers = Vec::new();
        action.apply(&mut part, &mut headers)?;
        let shown = |value: &Value<'_>| match value {
            Value::Struct(members) => members
                .members()
                .map(|(name, _, value)| format!("{name}={value:?}"))
                .collect::<Vec<_>>()
                .join(" "),
            value => format!("{value:?}"),
        };
        let headers: String = headers
            .iter()
            .map(|(name, part)| format!(" {name}:{}", shown(&part.value)))
            .collect();
        Ok(shown(&part.value) + &headers)
    }

    fn replace(include: &str, exclude: &str, renames: &[(&str, &str)]) -> Members {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let action = MemberAction::ReplaceField {
            include: list(include),
            exclude: list(exclude),
            renames: renames
                .iter()
                .map(|(old, new)| ((*old).to_owned(), (*new).to_owned()))
                .collect(),
        };
        Members::new(&action, true)
    }

    fn extract(field: &str, null_to_default: bool) -> Members {
        Members::new(
            &MemberAction::ExtractField(field.to_owned()),
            null_to_default,
        )
    }

    #[test]
    fn moved_members_leave_the_struct() {
        let action = |fields: &[&str]| {
            let action = MemberAction::HeaderFrom {
                fields: fields.iter().map(|&field| field.to_owned()).collect(),
                headers: vec!["h".to_owned(); fields.len()],
                remove: true,
            };
            Members::new(&action, true)
        };
        assert_eq!(
            applied(&action(&["a"]), pair()).unwrap(),
            "b=Null h:Int32(1)"
        );
        assert_eq!(
            applied(&action(&["b"]), pair()).unwrap(),
            "a=Int32(1) h:Int32(7)"
        );
        assert!(applied(&action(&["a", "c"]), pair()).is_err());
    }

    #[test]
    fn members_are_kept_left_out_and_renamed() {
        for (action, expected) in [
            (replace("", "a", &[]), "b=Int32(7)"),
            (replace("a", "", &[]), "a=Int32(1)"),
            (replace("a b", "a", &[]), "b=Int32(7)"),
            (replace("c", "", &[]), ""),
            (replace("b", "", &[("b", "c")]), "c=Int32(7)"),
            // Names to keep are the old ones.
            (replace("c", "", &[("b", "c")]), ""),
            (replace("a", "", &[("a", "b")]), "b=Int32(1)"),
            (
                replace("", "", &[("a", "b"), ("b", "a")]),
                "b=Int32(1) a=Int32(7)",
            ),
            (replace("", "", &[("x", "y")]), "a=Int32(1) b=Int32(7)"),
        ] {
            assert_eq!(applied(&action, pair()).unwrap(), expected);
        }
        assert!(applied(&replace("", "", &[("a", "b")]), pair()).is_err());
        assert!(applied(&replace("", "", &[("x", "b")]), pair()).is_err());
    }

    #[test]
    fn one_member_becomes_the_whole() {
        assert_eq!(applied(&extract("a", true), pair()).unwrap(), "Int32(1)");
        assert_eq!(applied(&extract("b", true), pair()).unwrap(), "Int32(7)");
        assert_eq!(applied(&extract("b", false), pair()).unwrap(), "Null");
        assert!(applied(&extract("c", true), pair()).is_err());
    }

    #[test]
    fn a_tombstone_passes_and_a_text_does_not() {
        let part = |schema: Option<Kind>, value| Part {
            schema: schema.map(|kind| Arc::new(Schema::optional(kind))),
            value,
        };
        let text = || Value::String("x".into());
        let (replace, extract) = (replace("", "a", &[]), extract("a", true));
        assert_eq!(applied(&replace, part(None, Value::Null)).unwrap(), "Null");
        assert_eq!(applied(&extract, part(None, Value::Null)).unwrap(), "Null");
        // Where there is a schema, ExtractField looks into it, and ReplaceField does not.
        let null = || part(Some(Kind::String), Value::Null);
        assert_eq!(applied(&replace, null()).unwrap(), "Null");
        assert!(applied(&extract, null()).is_err());
        for action in [replace, extract] {
            assert!(applied(&action, part(Some(Kind::String), text())).is_err());
            assert!(applied(&action, part(None, text())).is_err());
        }
    }
}
