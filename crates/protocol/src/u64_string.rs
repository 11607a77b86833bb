//! Serde format for 64-bit identifiers: strings in JSON, because JSON readers with 53-bit numbers (jq,
//! JavaScript) would round them. Numbers are accepted as well.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Both accepted JSON forms.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Number(u64),
}

impl Written {
    fn number<E: Error>(self) -> Result<u64, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => {
                text.parse().map_err(|_| E::custom(format!("{text:?} is no number of 64 bits")))
            }
        }
    }
}

pub(crate) fn serialize<S: Serializer>(number: &u64, s: S) -> Result<S::Ok, S::Error> {
    if s.is_human_readable() { s.collect_str(number) } else { number.serialize(s) }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    if d.is_human_readable() { Written::deserialize(d)?.number() } else { u64::deserialize(d) }
}

/// Serde format for an optional 64-bit identifier.
pub(crate) mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Written;

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub(crate) fn serialize<S: Serializer>(number: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { number.map(|n| n.to_string()).serialize(s) } else { number.serialize(s) }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
        if d.is_human_readable() {
            Option::<Written>::deserialize(d)?.map(Written::number).transpose()
        } else {
            Option::deserialize(d)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::activity::{Ask, AskKind};
    use crate::event::AgentEvent;
    use crate::request::Approve;
    use crate::{SessionId, SessionRef};

    /// A number that a reader with 53 bits would round.
    const WIDE: u64 = 15_729_205_093_659_715_748;

    /// Reads a document as JavaScript does: every number is a double.
    fn read_with_53_bits(value: &Value) -> Value {
        match value {
            Value::Number(number) => json!(number.as_f64().unwrap() as u64),
            Value::Array(items) => items.iter().map(read_with_53_bits).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), read_with_53_bits(value))).collect()
            }
            other => other.clone(),
        }
    }

    #[test]
    fn a_name_of_64_bits_survives_readers_with_53() {
        let ask =
            Ask { id: WIDE, kind: AskKind::Permission, text: String::new(), tool: None, answerable: true };
        let read = read_with_53_bits(&serde_json::to_value(&ask).unwrap());
        assert_eq!(read["id"], WIDE.to_string());
        assert_eq!(serde_json::from_value::<Ask>(read).unwrap(), ask);
        let answered =
            AgentEvent::AskAnswered { session: SessionId(1), ask: WIDE, allowed: true, by: String::new() };
        let read = read_with_53_bits(&serde_json::to_value(&answered).unwrap());
        assert_eq!(serde_json::from_value::<AgentEvent>(read).unwrap(), answered);
    }

    #[test]
    fn a_number_and_nothing_are_read_as_well() {
        let asked = |ask: Value| {
            let approve = Approve {
                session: SessionRef("a".into()),
                deny: false,
                ask: Some(1),
                reason: None,
                answers: Vec::new(),
            };
            let mut document = serde_json::to_value(approve).unwrap();
            assert_eq!(document["ask"], "1");
            match ask {
                Value::Null => drop(document.as_object_mut().unwrap().remove("ask")),
                ask => document["ask"] = ask,
            }
            serde_json::from_value::<Approve>(document).map(|approve| approve.ask)
        };
        assert_eq!(asked(json!(7)).unwrap(), Some(7));
        assert_eq!(asked(json!("7")).unwrap(), Some(7));
        assert_eq!(asked(Value::Null).unwrap(), None);
        assert!(asked(json!("x")).unwrap_err().to_string().contains("no number of 64 bits"));
    }
}
