//! JSON that is not quite: cut off at a limit, with bytes that are not UTF-8, with half a surrogate pair, or with raw control
//! characters in a text, as scripts write them.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// What could be read.
pub(super) struct Mended {
    /// All that is complete.
    pub(super) map: Map<String, Value>,
    /// The same with the text in whose middle it broke off.
    pub(super) cut: Option<Map<String, Value>>,
}

/// The object in such an input. What stands after it is ignored.
pub(super) fn mend(input: &[u8]) -> Option<Mended> {
    let text = readable(input);
    let mut mender = Mender::default();
    mender.read(text.trim_start().as_bytes());
    let cut = mender.in_text.then(|| parse(&mender.closed(mender.out.len(), true))).flatten();
    Some(Mended { map: parse(&mender.closed(mender.safe, false))?, cut })
}

fn parse(json: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(json).ok()
}

/// The text; a character that was cut off at the end is left out, bytes that are no text are replaced.
fn readable(input: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(input) {
        Err(error) if error.error_len().is_none() => String::from_utf8_lossy(&input[..error.valid_up_to()]),
        _ => String::from_utf8_lossy(input),
    }
}

/// Copies JSON and remembers what is open.
#[derive(Default)]
struct Mender {
    out: Vec<u8>,
    /// What closes the objects and lists that are open.
    open: Vec<u8>,
    in_text: bool,
    /// Up to here everything is complete but for what is open. It is moved with every bracket, so `open` fits it.
    safe: usize,
}

impl Mender {
    fn read(&mut self, input: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            at += match (self.in_text, byte) {
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
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => {
                self.open.push(if byte == b'{' { b'}' } else { b']' });
                self.safe = at + 1;
            }
            b'}' | b']' => {
                self.open.pop();
                self.safe = at + 1;
            }
            b',' => self.safe = at,
            _ => {}
        }
    }

    /// Copies an escape, and says how long it was; 0 where it was cut off. Half a surrogate pair becomes U+FFFD.
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

    /// Writes U+FFFD in the place of one escaped unit.
    fn replace(&mut self) -> usize {
        self.out.extend(b"\\ufffd");
        6
    }

    /// What was copied up to there, with all that is open closed.
    fn closed(&self, end: usize, in_text: bool) -> Vec<u8> {
        let mut out = self.out[..end].to_vec();
        if in_text {
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

    /// What is complete in a text, and what is there with the text it broke off in.
    fn mended(input: &str) -> Option<(Value, Option<Value>)> {
        mend(input.as_bytes()).map(|mended| (Value::Object(mended.map), mended.cut.map(Value::Object)))
    }

    #[test]
    fn what_was_cut_off_is_read_as_far_as_it_goes() {
        let in_text = |input, map, cut| assert_eq!(mended(input), Some((map, Some(cut))), "{input}");
        in_text(r#"{"a":"b","c":"de"#, json!({"a": "b"}), json!({"a": "b", "c": "de"}));
        in_text(r#"{"a":"b","c":"d\"#, json!({"a": "b"}), json!({"a": "b", "c": "d"}));
        in_text(r#"{"a":"b","c":"d\u00e"#, json!({"a": "b"}), json!({"a": "b", "c": "d"}));
        in_text(r#"{"a":"b","c":"d\ud83d\ude0"#, json!({"a": "b"}), json!({"a": "b", "c": "d"}));
        in_text(r#"{"a":{"b":1,"c":"d"#, json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": "d"}}));
        let elsewhere = |input, map| assert_eq!(mended(input), Some((map, None)), "{input}");
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
        let read = |input, map| assert_eq!(mended(input), Some((map, None)), "{input}");
        read("{\"a\":\"b\nc\"}", json!({"a": "b\nc"}));
        read(r#"{"a":"\ud83d x"}"#, json!({"a": "\u{fffd} x"}));
        read(r#"{"a":"\ude00"}"#, json!({"a": "\u{fffd}"}));
        read(r#"{"a":"\ud83d\ude00\ud83d\n"}"#, json!({"a": "😀\u{fffd}\n"}));
        read("{\"a\":1} trailing", json!({"a": 1}));
        assert_eq!(Value::Object(mend(b"{\"a\":\"x\xff\"}").unwrap().map), json!({"a": "x\u{fffd}"}));
        let cut_character = mend(b"{\"a\":\"x\xe2\x82").unwrap().cut.unwrap();
        assert_eq!(Value::Object(cut_character), json!({"a": "x"}));
    }

    #[test]
    fn what_is_no_object_is_none() {
        for input in ["", "null", "[1]", "\"x\"", "x", "}", "{x}", &"{\"a\":".repeat(300)] {
            assert_eq!(mended(input), None, "{input}");
        }
    }

    proptest! {
        /// Wherever an object is cut, what is complete is all of it, and what is not is a beginning.
        #[test]
        fn a_beginning_is_read_from_every_cut(text in "\\PC{0,20}", n in 0..1000u32, cut in 1..200usize) {
            let whole = json!({"event": "E", "list": [n, {"x": text}], "text": text});
            let input = whole.to_string();
            let mended = mend(&input.as_bytes()[..cut.min(input.len() - 1)]).unwrap();
            for key in ["event", "text"] {
                prop_assert!(mended.map.get(key).is_none_or(|value| *value == whole[key]));
            }
            if let Some(part) = mended.cut.as_ref().and_then(|cut| cut.get("text")) {
                prop_assert!(text.starts_with(part.as_str().unwrap()));
            }
        }
    }
}
