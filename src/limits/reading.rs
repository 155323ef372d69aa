//! Reading a block of limits: one layer of names and values over values that are there already.
//!
//! A layer sets what it names and leaves the rest, so a tenant's overrides fall back to the
//! defaults field by field. A wrong value is an error that names its field. A name that nobody
//! knows is handed back, since what it means depends on the file: an error in our own, a warning
//! in the runtime file that Cortex reads too.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serializer};

use super::QueryRate;
use crate::units::Millis;

/// A block of named limits.
pub(super) trait Block: Clone {
    /// Reads the field called `name`; `false`, with the value still to be read, if there is none.
    fn set<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: &mut Field<'_, A>,
    ) -> Result<bool, A::Error>;

    /// Names that are accepted although the block has no such field.
    fn is_read_past(name: &str) -> bool;
}

/// Reads a block over `base`; names end up in `names`.
pub(super) struct Layer<'a, B> {
    /// Where the block stands, for errors; empty at the top.
    pub place: &'a str,
    pub base: &'a B,
    pub names: &'a mut Names,
}

/// The names that stand in a block, without those that are read past.
#[derive(Default)]
pub(super) struct Names {
    /// Fields that the block sets, whatever to.
    pub set: Vec<String>,
    /// What nobody knows.
    pub strange: Vec<String>,
}

impl<'de, B: Block> DeserializeSeed<'de> for Layer<'_, B> {
    type Value = B;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<B, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, B: Block> Visitor<'de> for Layer<'_, B> {
    type Value = B;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("limits by name")
    }

    fn visit_unit<E>(self) -> Result<B, E> {
        Ok(self.base.clone())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<B, A::Error> {
        let mut block = self.base.clone();
        while let Some(name) = values.next_key::<String>()? {
            let dot = if self.place.is_empty() { "" } else { "." };
            let place = format!("{}{dot}{name}", self.place);
            if block.set(&name, &mut Field { place: &place, values: &mut values })? {
                self.names.set.push(name);
            } else {
                values.next_value::<IgnoredAny>()?;
                if !B::is_read_past(&name) {
                    self.names.strange.push(name);
                }
            }
        }
        Ok(block)
    }
}

/// The value of one field, still to be read. Errors name its place once, and what stands there.
pub(super) struct Field<'a, A> {
    place: &'a str,
    values: &'a mut A,
}

impl<'de, A: MapAccess<'de>> Field<'_, A> {
    /// A whole number of 0 or more.
    pub fn count(&mut self) -> Result<u64, A::Error> {
        let scalar: Scalar = self.values.next_value()?;
        let count = scalar.whole().and_then(|n| u64::try_from(n).ok());
        count.ok_or_else(|| self.wrong(&scalar, "a whole number of 0 or more"))
    }

    /// A whole number of 1 or more; `why` it cannot be less goes into the error.
    pub fn positive(&mut self, why: &str) -> Result<u64, A::Error> {
        let scalar: Scalar = self.values.next_value()?;
        let count = scalar.whole().and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0);
        count.ok_or_else(|| {
            self.wrong(&scalar, &format!("a whole number of 1 or more, since {why}"))
        })
    }

    /// A whole number where 0 means none, and below 0 too.
    pub fn count_or_none(&mut self) -> Result<u64, A::Error> {
        self.signed().map(|n| n.max(0) as u64)
    }

    /// A whole number that may be negative.
    pub fn signed(&mut self) -> Result<i64, A::Error> {
        let scalar: Scalar = self.values.next_value()?;
        scalar.whole().ok_or_else(|| self.wrong(&scalar, WHOLE))
    }

    /// A finite number, 0 or more.
    pub fn rate(&mut self) -> Result<f64, A::Error> {
        let scalar: Scalar = self.values.next_value()?;
        let rate = scalar.number().filter(|&rate| rate >= 0.0);
        rate.ok_or_else(|| self.wrong(&scalar, "a finite number of 0 or more"))
    }

    /// A finite number, 0 or more, or a share.
    pub fn query_rate(&mut self) -> Result<QueryRate, A::Error> {
        let scalar: Scalar = self.values.next_value()?;
        let rate = match &scalar {
            Scalar::Text(text) => QueryRate::parse_share(text),
            number => number.number().filter(|&rate| rate >= 0.0).map(QueryRate::PerSecond),
        };
        rate.ok_or_else(|| self.wrong(&scalar, QueryRate::EXPECTED))
    }

    /// A finite number.
    pub fn number(&mut self) -> Result<f64, A::Error> {
        let scalar: Scalar = self.values.next_value()?;
        scalar.number().ok_or_else(|| self.wrong(&scalar, "a finite number"))
    }

    /// A switch, also in the words of older YAML.
    pub fn flag(&mut self) -> Result<bool, A::Error> {
        let scalar = self.values.next_value()?;
        match &scalar {
            Scalar::Bool(flag) => return Ok(*flag),
            Scalar::Text(word) => match word.to_ascii_lowercase().as_str() {
                "y" | "yes" | "on" => return Ok(true),
                "n" | "no" | "off" => return Ok(false),
                _ => {}
            },
            _ => {}
        }
        Err(self.wrong(&scalar, "true or false"))
    }

    /// A duration as text, or a bare 0.
    pub fn span(&mut self) -> Result<Millis, A::Error> {
        let scalar = self.values.next_value()?;
        let span = match &scalar {
            Scalar::Unsigned(0) => Some(Millis(0)),
            Scalar::Text(text) => Millis::parse(text).ok(),
            _ => None,
        };
        span.ok_or_else(|| self.wrong(&scalar, "a duration with a unit, such as 10m"))
    }

    /// A value of another kind, which says itself what is wrong with it.
    pub fn other<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        let place = self.place;
        self.values.next_value().map_err(|e| de::Error::custom(format_args!("{place}: {e}")))
    }

    fn wrong(&self, scalar: &Scalar, expected: &str) -> A::Error {
        de::Error::custom(format_args!("{}: {scalar} is not {expected}", self.place))
    }
}

const WHOLE: &str = "a whole number";

/// A whole number that Cortex's `int` holds, outside of a block.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let scalar = Scalar::deserialize(deserializer)?;
    let wrong = || de::Error::custom(format_args!("{scalar} is not {WHOLE}"));
    scalar.whole().ok_or_else(wrong)
}

/// Largest double up to which every whole number has one: 2^53.
const WHOLE_DOUBLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Writes a duration as Cortex shows those of limits: Prometheus' form, weeks only when whole.
pub(super) fn write_span<S: Serializer>(span: &Millis, out: S) -> Result<S::Ok, S::Error> {
    const UNITS: [(&str, u64, bool); 7] = [
        ("y", 31_536_000_000, true),
        ("w", 604_800_000, true),
        ("d", 86_400_000, false),
        ("h", 3_600_000, false),
        ("m", 60_000, false),
        ("s", 1_000, false),
        ("ms", 1, false),
    ];
    let mut rest_ms = span.0;
    let mut text = String::new();
    for (unit, unit_ms, whole_only) in UNITS {
        let fits = !whole_only || rest_ms.is_multiple_of(unit_ms);
        if fits && rest_ms >= unit_ms {
            text.push_str(&format!("{}{unit}", rest_ms / unit_ms));
            rest_ms %= unit_ms;
        }
    }
    out.serialize_str(if text.is_empty() { "0s" } else { &text })
}

/// A value whose kind is not known before it is read.
enum Scalar {
    Nothing,
    Bool(bool),
    Unsigned(u64),
    /// Negative.
    Signed(i64),
    Float(f64),
    Text(String),
    /// A list or a map, read past.
    Nested,
}

impl Scalar {
    /// A whole number that Cortex's `int` holds. `1e6` is one too, as its YAML reader has it.
    fn whole(&self) -> Option<i64> {
        match *self {
            Self::Unsigned(n) => i64::try_from(n).ok(),
            Self::Signed(n) => Some(n),
            Self::Float(n) if n.fract() == 0.0 && n.abs() <= WHOLE_DOUBLE_MAX => Some(n as i64),
            _ => None,
        }
    }

    fn number(&self) -> Option<f64> {
        match *self {
            Self::Unsigned(n) => Some(n as f64),
            Self::Signed(n) => Some(n as f64),
            Self::Float(n) if n.is_finite() => Some(n),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no value"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Unsigned(n) => write!(f, "{n}"),
            Self::Signed(n) => write!(f, "{n}"),
            Self::Float(n) => write!(f, "{n}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Nested => f.write_str("a list or map"),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Nothing)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(flag))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Scalar, E> {
        Ok(Scalar::Unsigned(n))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Scalar, E> {
        Ok(u64::try_from(n).map_or(Scalar::Signed(n), Scalar::Unsigned))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(n))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Scalar, A::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nested)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Scalar, A::Error> {
        while values.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nested)
    }
}
