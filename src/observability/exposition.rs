//! Metric families as text, in either of the two formats that scrapers read. Knows no metric.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue,
    GaugeValueEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// A text format, as agreed with the scraper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// OpenMetrics for whoever asks for it by name, Prometheus' own format for all others.
    pub(super) fn negotiate(accept: Option<&str>) -> Self {
        let asked = accept.is_some_and(|accept| {
            accept.split(',').any(|entry| {
                let mut parts = entry.split(';').map(str::trim);
                parts.next() == Some("application/openmetrics-text")
                    && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0"))
            })
        });
        if asked {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

pub(super) type Labels = Vec<(&'static str, String)>;

/// Whole numbers stay exact, also beyond 2^53.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Whole(u64),
    Signed(i64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Value::Whole(value as u64)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Signed(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

impl EncodeGaugeValue for Value {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Value::Whole(value) => EncodeGaugeValue::encode(value, encoder),
            Value::Signed(value) => EncodeGaugeValue::encode(value, encoder),
            Value::Real(value) => EncodeGaugeValue::encode(value, encoder),
        }
    }
}

impl EncodeCounterValue for Value {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> fmt::Result {
        match self {
            Value::Whole(value) => EncodeCounterValue::encode(value, encoder),
            // No counter of ours is made from these.
            Value::Signed(_) | Value::Real(_) => Err(fmt::Error),
        }
    }
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Labels, Value)>,
}

/// Families in the order in which they first got a value.
#[derive(Debug, Default)]
pub(super) struct Families {
    list: Vec<Family>,
}

impl Families {
    /// Adds one sample; the family exists from its first on. A counter is named without `_total`,
    /// which the formats add.
    pub(super) fn add(
        &mut self,
        (name, kind): (&'static str, Kind),
        help: &'static str,
        labels: Labels,
        value: impl Into<Value>,
    ) {
        let index = self
            .list
            .iter()
            .position(|family| family.name == name)
            .unwrap_or_else(|| {
                self.list.push(Family {
                    name,
                    help,
                    kind,
                    samples: Vec::new(),
                });
                self.list.len() - 1
            });
        self.list[index].samples.push((labels, value.into()));
    }

    /// All families as text.
    pub(super) fn render(self, format: Format) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        match format {
            Format::Prometheus => prometheus_text::encode(&mut page, &registry)?,
            Format::OpenMetrics => text::encode(&mut page, &registry)?,
        }
        Ok(page)
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for family in &self.list {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in &family.samples {
                let mut series = metric.encode_family(labels)?;
                match family.kind {
                    Kind::Counter => {
                        series.encode_counter::<NoLabelSet, Value, u64>(value, None)?;
                    }
                    Kind::Gauge => series.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}
