//! The chain of transforms around the router, each behind its predicate.

use std::borrow::Cow;

use super::columns::{Row, Table};
use super::draft::{Draft, DraftHeader, Part};
use super::expand;
use super::fields::Members;
use super::guess::literal;
use super::problem::Problem;
use super::router::{self, Content, Event, Roles, RouterState};
use super::topic::Rewriter;
use super::value::{Struct, Value};
use super::{Dropped, Subject};
use crate::config::{self, BinaryMode, DatePattern, Predicate, PredicateTest, TransformKind};

/// One transform, made ready.
#[derive(Debug)]
pub(super) struct Step {
    predicate: Option<Predicate>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    /// The router of this number.
    Route(usize, Box<config::Router>),
    Decode {
        include_nulls: bool,
        /// Messages arrive as bytes, and not as some text made of them.
        binary: bool,
    },
    Rewrite(Rewriter),
    Insert(String, Part<'static>),
    Drop(Vec<String>),
    Filter,
    Date {
        topic: String,
        timestamp: DatePattern,
    },
    /// Something with the members of the key, or of the value.
    Members {
        of_key: bool,
        action: Members,
    },
}

/// A change that no router has turned into a record yet.
#[derive(Debug)]
pub(super) struct Raw<'r, 'a> {
    pub(super) topic: Cow<'a, str>,
    pub(super) headers: Vec<DraftHeader<'a>>,
    pub(super) content: RawContent<'r, 'a>,
    /// The timestamp when no column gives one.
    pub(super) time_ms: i64,
}

/// What the change holds.
#[derive(Debug)]
pub(super) enum RawContent<'r, 'a> {
    /// A row, and where each router finds its columns.
    Row(&'a Table, &'r Row<'a>, &'r [Roles]),
    /// A logical message whose bytes nobody has looked at.
    Message(&'a [u8]),
    /// The members of a decoded message.
    Document(Struct<'static>),
}

enum Stage<'r, 'a> {
    Raw(Raw<'r, 'a>),
    Routed(Draft<'a>),
}

/// The steps of a chain and, in the order of their numbers, the options of its routers.
pub(super) fn prepare(connector: &config::Connector) -> Vec<Step> {
    let mut routers = 0;
    connector
        .transforms
        .iter()
        .map(|transform| Step {
            predicate: transform.predicate.clone(),
            action: match &transform.kind {
                TransformKind::EventRouter(options) => {
                    routers += 1;
                    Action::Route(routers - 1, options.clone())
                }
                TransformKind::DecodeMessage { include_nulls } => Action::Decode {
                    include_nulls: *include_nulls,
                    binary: connector.values.binary == BinaryMode::Bytes,
                },
                TransformKind::RegexRouter { regex, replacement } => {
                    Action::Rewrite(Rewriter::new(regex, replacement))
                }
                TransformKind::InsertHeader { name, value } => {
                    Action::Insert(name.clone(), literal(value))
                }
                TransformKind::DropHeaders { names } => Action::Drop(names.clone()),
                TransformKind::Filter => Action::Filter,
                TransformKind::TimestampRouter {
                    topic_format,
                    timestamp_format,
                } => Action::Date {
                    topic: topic_format.clone(),
                    timestamp: timestamp_format.clone(),
                },
                TransformKind::Members {
                    of_key,
                    null_to_default,
                    action,
                } => Action::Members {
                    of_key: *of_key,
                    action: Members::new(action, *null_to_default),
                },
            },
        })
        .collect()
}

/// The routers of a chain, in the order of their numbers.
pub(super) fn routers(chain: &[Step]) -> impl Iterator<Item = &config::Router> {
    chain.iter().filter_map(|step| match &step.action {
        Action::Route(_, options) => Some(&**options),
        _ => None,
    })
}

/// The only transform, when it is a router that takes every change of `topic`.
pub(super) fn sole_router<'c>(chain: &'c [Step], topic: &str) -> Option<&'c config::Router> {
    match chain {
        [step] => step.router_of(topic),
        _ => None,
    }
}

/// The first router that takes every change of `topic`, unless a filter takes them before.
pub(super) fn first_router<'c>(chain: &'c [Step], topic: &str) -> Option<&'c config::Router> {
    chain
        .iter()
        .take_while(|step| !(matches!(step.action, Action::Filter) && step.takes_all(topic)))
        .find_map(|step| step.router_of(topic))
}

/// What comes out of the chain: a record, or why there is none.
pub(super) type Routed<'a> = Result<Draft<'a>, Dropped>;

/// Runs a change through the chain.
pub(super) fn run<'a>(
    chain: &'a [Step],
    routers: &mut [RouterState],
    raw: Raw<'_, 'a>,
) -> Result<Routed<'a>, Problem> {
    let mut stage = Stage::Raw(raw);
    for step in chain {
        if step.applies(&stage) {
            // A second router takes what is no change as it is, but for a tombstone.
            let drops = match step.action {
                Action::Filter => true,
                Action::Route(..) => stage.is_tombstone(),
                _ => false,
            };
            if drops {
                return Ok(Err(Dropped::Filtered));
            }
            stage = step.apply(stage, routers)?;
        }
    }
    Ok(match stage {
        Stage::Raw(_) => Err(Dropped::NotRouted),
        Stage::Routed(draft) => Ok(draft),
    })
}

impl<'a> Stage<'_, 'a> {
    fn topic(&self) -> &str {
        match self {
            Stage::Raw(raw) => &raw.topic,
            Stage::Routed(draft) => &draft.topic,
        }
    }

    fn headers(&self) -> &[DraftHeader<'a>] {
        match self {
            Stage::Raw(raw) => &raw.headers,
            Stage::Routed(draft) => &draft.headers,
        }
    }

    fn headers_mut(&mut self) -> &mut Vec<DraftHeader<'a>> {
        match self {
            Stage::Raw(raw) => &mut raw.headers,
            Stage::Routed(draft) => &mut draft.headers,
        }
    }

    fn is_tombstone(&self) -> bool {
        match self {
            Stage::Raw(_) => false,
            Stage::Routed(draft) => draft.value.value == Value::Null,
        }
    }
}

impl Step {
    fn router_of(&self, topic: &str) -> Option<&config::Router> {
        let Action::Route(_, options) = &self.action else {
            return None;
        };
        self.takes_all(topic).then_some(&**options)
    }

    /// Whether it applies to every change of `topic`, as far as that can be known beforehand.
    fn takes_all(&self, topic: &str) -> bool {
        match &self.predicate {
            None => true,
            Some(predicate) => match &predicate.test {
                PredicateTest::TopicNameMatches(regex) => {
                    regex.is_match(topic).unwrap_or(false) != predicate.negate
                }
                // A raw change is no tombstone; what headers it has differs from row to row.
                PredicateTest::RecordIsTombstone => predicate.negate,
                PredicateTest::HasHeaderKey(_) => false,
            },
        }
    }

    fn applies(&self, stage: &Stage<'_, '_>) -> bool {
        let Some(predicate) = &self.predicate else {
            return true;
        };
        let holds = match &predicate.test {
            PredicateTest::TopicNameMatches(regex) => {
                regex.is_match(stage.topic()).unwrap_or(false)
            }
            PredicateTest::HasHeaderKey(name) => {
                stage.headers().iter().any(|(header, _)| header == name)
            }
            PredicateTest::RecordIsTombstone => stage.is_tombstone(),
        };
        holds != predicate.negate
    }

    fn apply<'r, 'a>(
        &'a self,
        mut stage: Stage<'r, 'a>,
        routers: &mut [RouterState],
    ) -> Result<Stage<'r, 'a>, Problem> {
        match (&self.action, &mut stage) {
            (Action::Route(number, options), Stage::Raw(_)) => {
                return route(*number, options, stage, routers);
            }
            (
                Action::Decode {
                    include_nulls,
                    binary,
                },
                Stage::Raw(raw),
            ) => {
                decode(*include_nulls, *binary, raw)?;
            }
            (Action::Route(..) | Action::Decode { .. }, Stage::Routed(_)) => {}
            (Action::Rewrite(rewriter), stage) => {
                if let Some(topic) = rewriter.rewrite(stage.topic())? {
                    match stage {
                        Stage::Raw(raw) => raw.topic = Cow::Owned(topic),
                        Stage::Routed(draft) => draft.topic = topic,
                    }
                }
            }
            (Action::Insert(name, part), stage) => {
                stage
                    .headers_mut()
                    .push((Cow::Borrowed(name), part.clone()));
            }
            (Action::Drop(names), stage) => {
                stage
                    .headers_mut()
                    .retain(|(header, _)| !names.iter().any(|name| header == name));
            }
            // `run` has taken it out of the chain already.
            (Action::Filter, _) => {}
            (Action::Date { .. }, Stage::Raw(_)) => return Err(too_early("TimestampRouter")),
            (Action::Date { topic, timestamp }, Stage::Routed(draft)) => {
                let date = timestamp.format(draft.timestamp_ms);
                draft.topic = topic
                    .replace("${topic}", &draft.topic)
                    .replace("${timestamp}", &date);
            }
            (Action::Members { action, .. }, Stage::Raw(_)) => {
                return Err(too_early(action.label()));
            }
            (Action::Members { of_key, action }, Stage::Routed(draft)) => {
                let part = if *of_key {
                    &mut draft.key
                } else {
                    &mut draft.value
                };
                action.apply(part, &mut draft.headers)?;
            }
        }
        Ok(stage)
    }
}

fn too_early(transform: &str) -> Problem {
    Problem::new(format!(
        "{transform} stands before the router, where walpost has no record yet; put it behind the \
         router"
    ))
}

/// DecodeLogicalDecodingMessageContent; a row passes.
fn decode(include_nulls: bool, binary: bool, raw: &mut Raw<'_, '_>) -> Result<(), Problem> {
    let RawContent::Message(bytes) = raw.content else {
        return Ok(());
    };
    if !binary {
        return Err(Problem::new(
            "logical messages can be decoded with binary.handling.mode=bytes only",
        ));
    }
    let document = expand::decode(include_nulls, &String::from_utf8_lossy(bytes));
    raw.content = RawContent::Document(document.ok_or_else(|| {
        Problem::new(
            "the content of the logical message is no JSON object that Connect has a schema for",
        )
    })?);
    Ok(())
}

/// Whom a logical message is about, where the chain decodes messages and this one can be read.
pub(super) fn subject(chain: &[Step], content: &[u8]) -> Subject {
    let decodes = chain.iter().find_map(|step| match step.action {
        Action::Decode { include_nulls, .. } => Some(include_nulls),
        _ => None,
    });
    let document =
        decodes.and_then(|nulls| expand::decode(nulls, &String::from_utf8_lossy(content)));
    let (Some(document), Some(options)) = (document, routers(chain).next()) else {
        return Subject::default();
    };
    let text = |name: &str| {
        let at = document.schema.position(name)?;
        match document.values.get(at)? {
            Value::String(text) => Some(text.to_string()),
            Value::Int32(number) => Some(number.to_string()),
            Value::Int64(number) => Some(number.to_string()),
            _ => None,
        }
    };
    Subject {
        event_id: text(&options.id),
        aggregate: text(&options.key).map(String::into_bytes),
    }
}

fn route<'r, 'a>(
    number: usize,
    options: &'a config::Router,
    stage: Stage<'r, 'a>,
    routers: &mut [RouterState],
) -> Result<Stage<'r, 'a>, Problem> {
    let Stage::Raw(raw) = stage else {
        return Ok(stage);
    };
    let Some(state) = routers.get_mut(number) else {
        return Ok(Stage::Raw(raw));
    };
    let event = |content| Event {
        content,
        headers: raw.headers.clone(),
        time_ms: raw.time_ms,
    };
    let draft = match &raw.content {
        RawContent::Message(_) => return Ok(Stage::Raw(raw)),
        RawContent::Document(document) => {
            let content = Content::Document(document);
            let roles = Roles::resolve(options, |name| content.position(name));
            router::route(options, &roles, state, event(content))?
        }
        RawContent::Row(table, row, roles) => {
            let Some(roles) = roles.get(number) else {
                return Ok(Stage::Raw(raw));
            };
            router::route(options, roles, state, event(Content::Row(table, row)))?
        }
    };
    Ok(Stage::Routed(draft))
}
