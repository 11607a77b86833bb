//! Reads malformed JSON: cut off at a limit, with bytes that are not UTF-8, with half a surrogate pair, or
//! with raw control characters in a string, as scripts write them.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// A repaired object.
pub(super) struct Repaired {
    /// The complete values.
    pub(super) map: Map<String, Value>,
    /// The complete values and the beginning of the string in which the input was cut off.
    pub(super) cut: Option<Map<String, Value>>,
    /// False if the input ended within the object.
    pub(super) is_whole: bool,
}

/// Reads the object in malformed JSON; text after the object is ignored. None if there is no object.
pub(super) fn repair_json(input: &[u8]) -> Option<Repaired> {
    let text = decode(input);
    let mut repairer = Repairer::default();
    repairer.read(text.trim_start().as_bytes());
    let cut = repairer.in_string.then(|| parse(&repairer.close(repairer.out.len(), true))).flatten();
    let is_whole = repairer.open.is_empty();
    Some(Repaired { map: parse(&repairer.close(repairer.complete, false))?, cut, is_whole })
}

fn parse(json: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(json).ok()
}

/// Decodes UTF-8: drops a character that is cut off at the end, replaces invalid bytes.
fn decode(input: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(input) {
        Err(error) if error.error_len().is_none() => String::from_utf8_lossy(&input[..error.valid_up_to()]),
        _ => String::from_utf8_lossy(input),
    }
}

/// Copies JSON and keeps track of open objects and lists.
#[derive(Default)]
struct Repairer {
    out: Vec<u8>,
    /// The closing brackets of the open objects and lists.
    open: Vec<u8>,
    in_string: bool,
    /// The length of `out` up to which all values but the open ones are complete. Every bracket updates it,
    /// so that `open` is always valid for it.
    complete: usize,
}

impl Repairer {
    fn read(&mut self, input: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            at += match (self.in_string, byte) {
                (true, b'\\') => match self.escape(&input[at..]) {
                    0 => return,
                    taken => taken,
                },
                (true, 0..0x20) => {
                    self.out.extend(format!("\\u{byte:04x}").bytes());
                    1
                }
                _ => {
                    self.plain(byte);
                    1
                }
            };
            if self.open.is_empty() {
                return;
            }
        }
    }

    fn plain(&mut self, byte: u8) {
        let at = self.out.len();
        self.out.push(byte);
        match byte {
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => {
                self.open.push(if byte == b'{' { b'}' } else { b']' });
                self.complete = at + 1;
            }
            b'}' | b']' => {
                self.open.pop();
                self.complete = at + 1;
            }
            b',' => self.complete = at,
            _ => {}
        }
    }

    /// Copies an escape and returns its length, 0 if it was cut off. Half a surrogate pair becomes U+FFFD.
    fn escape(&mut self, input: &[u8]) -> usize {
        let unit = |at: usize| {
            let digits = std::str::from_utf8(input.get(at..at + 6)?.strip_prefix(b"\\u")?).ok()?;
            u16::from_str_radix(digits, 16).ok()
        };
        let taken = match (input.get(1), unit(0)) {
            (None, _) => return 0,
            (Some(b'u'), None) if input.len() < 6 => return 0,
            (Some(b'u'), Some(0xd800..0xdc00)) if input.len() < 12 && !input.contains(&b'"') => return 0,
            (Some(b'u'), Some(0xd800..0xdc00)) => match unit(6) {
                Some(0xdc00..0xe000) => 12,
                _ => return self.replace(),
            },
            (Some(b'u'), Some(0xdc00..0xe000)) => return self.replace(),
            (Some(b'u'), Some(_)) => 6,
            _ => 2,
        };
        self.out.extend(&input[..taken]);
        taken
    }

    /// Writes U+FFFD in place of one escaped UTF-16 unit and returns the unit's length.
    fn replace(&mut self) -> usize {
        self.out.extend(b"\\ufffd");
        6
    }

    /// Returns the copy up to `end`, with the string (if `in_string`) and the open brackets closed.
    fn close(&self, end: usize, in_string: bool) -> Vec<u8> {
        let mut out = self.out[..end].to_vec();
        if in_string {
            out.push(b'"');
        }
        out.extend(self.open.iter().rev());
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Returns the complete values, and those with the truncated string.
    fn repaired(input: &str) -> Option<(Value, Option<Value>)> {
        repair_json(input.as_bytes())
            .map(|repaired| (Value::Object(repaired.map), repaired.cut.map(Value::Object)))
    }

    #[test]
    fn what_was_cut_off_is_read_as_far_as_it_goes() {
        let in_string = |input, map, cut| assert_eq!(repaired(input), Some((map, Some(cut))), "{input}");
        in_string(r#"{"a":"b","c":"de"#, json!({"a": "b"}), json!({"a": "b", "c": "de"}));
        in_string(r#"{"a":"b","c":"d\"#, json!({"a": "b"}), json!({"a": "b", "c": "d"}));
        in_string(r#"{"a":"b","c":"d\u00e"#, json!({"a": "b"}), json!({"a": "b", "c": "d"}));
        in_string(r#"{"a":"b","c":"d\ud83d\ude0"#, json!({"a": "b"}), json!({"a": "b", "c": "d"}));
        in_string(r#"{"a":{"b":1,"c":"d"#, json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": "d"}}));
        let elsewhere = |input, map| assert_eq!(repaired(input), Some((map, None)), "{input}");
        elsewhere(r#"{"a":"b","c""#, json!({"a": "b"}));
        elsewhere(r#"{"a":"b","c"#, json!({"a": "b"}));
        elsewhere(r#"{"a":"b","c":"#, json!({"a": "b"}));
        elsewhere(r#"{"a":"b","c":tr"#, json!({"a": "b"}));
        elsewhere(r#"{"a":"b","c":12"#, json!({"a": "b"}));
        elsewhere(r#"{"a":"b","#, json!({"a": "b"}));
        elsewhere(r#"{"a":{"x":[1,2,{"y":"#, json!({"a": {"x": [1, 2, {}]}}));
        elsewhere(r#"{"a""#, json!({}));
        elsewhere("{", json!({}));
    }

    #[test]
    fn what_is_not_quite_json_is_read() {
        let read = |input, map| assert_eq!(repaired(input), Some((map, None)), "{input}");
        read("{\"a\":\"b\nc\"}", json!({"a": "b\nc"}));
        read(r#"{"a":"\ud83d x"}"#, json!({"a": "\u{fffd} x"}));
        read(r#"{"a":"\ude00"}"#, json!({"a": "\u{fffd}"}));
        read(r#"{"a":"\ud83d\ude00\ud83d\n"}"#, json!({"a": "😀\u{fffd}\n"}));
        read("{\"a\":1} trailing", json!({"a": 1}));
        assert_eq!(Value::Object(repair_json(b"{\"a\":\"x\xff\"}").unwrap().map), json!({"a": "x\u{fffd}"}));
        let cut_character = repair_json(b"{\"a\":\"x\xe2\x82").unwrap().cut.unwrap();
        assert_eq!(Value::Object(cut_character), json!({"a": "x"}));
        let is_whole = |input: &[u8]| repair_json(input).unwrap().is_whole;
        assert!(is_whole(b"{\"a\":\"b\nc\"}") && is_whole(b"{\"a\":1} trailing"));
        assert!(!is_whole(b"{\"a\":\"b") && !is_whole(b"{\"a\":{}") && !is_whole(b"{"));
    }

    #[test]
    fn what_is_no_object_is_none() {
        for input in ["", "null", "[1]", "\"x\"", "x", "}", "{x}", &"{\"a\":".repeat(300)] {
            assert_eq!(repaired(input), None, "{input}");
        }
    }

    proptest! {
        /// After a cut anywhere, the complete values are those of the object, and a truncated one is a
        /// prefix.
        #[test]
        fn a_beginning_is_read_from_every_cut(text in "\\PC{0,20}", n in 0..1000u32, cut in 1..200usize) {
            let whole = json!({"event": "E", "list": [n, {"x": text}], "text": text});
            let input = whole.to_string();
            let repaired = repair_json(&input.as_bytes()[..cut.min(input.len() - 1)]).unwrap();
            for key in ["event", "text"] {
                prop_assert!(repaired.map.get(key).is_none_or(|value| *value == whole[key]));
            }
            if let Some(part) = repaired.cut.as_ref().and_then(|cut| cut.get("text")) {
                prop_assert!(text.starts_with(part.as_str().unwrap()));
            }
        }
    }
}
