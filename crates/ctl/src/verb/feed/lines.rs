//! Parses a line of the feed into observations.

use protocol::request::{Observe, View};
use protocol::{Call, Refusal, Request, frame, view_parts};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;

/// Bits of the numbers that every JSON program represents exactly.
const EXACT_BITS: u32 = 53;

/// The state that a line inherits from those before it.
#[derive(Debug)]
pub(super) struct Lines {
    /// The watcher of lines that do not name one.
    watcher: u64,
    /// The number of the last line.
    seq: u64,
    /// Excess of frames over lines: a snapshot in parts shifts the numbers of all that follow, so that a gap
    /// between lines is a gap between frames, and the reverse.
    extra: u64,
}

/// A line that is an object: an observation, of which everything but the view may be left out. The view is
/// under the key `view`, or is the object itself.
#[derive(Debug, Default, Deserialize)]
struct Line {
    watcher: Option<u64>,
    seq: Option<u64>,
    asked: Option<u64>,
    age_ms: Option<u64>,
    sent_at_ms: Option<u64>,
    complete: Option<bool>,
    view: Option<Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Lines {
    /// The state before the first line.
    pub(super) fn new() -> Result<Self, Error> {
        let random = getrandom::u64()
            .map_err(|error| Refusal::failed(format!("cannot get random numbers: {error}")))?;
        Ok(Self { watcher: random >> (u64::BITS - EXACT_BITS), seq: 0, extra: 0 })
    }

    /// Parses a line: one observation, or the parts of a large one.
    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Vec<Observe>, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let (line, view) = match value {
            Value::Object(_) => {
                let mut line: Line = serde_json::from_value(value).map_err(|error| error.to_string())?;
                let view = view_of(line.view.take(), std::mem::take(&mut line.rest))?;
                (line, view)
            }
            view => (Line::default(), view),
        };
        let view = read(view)?;
        let seq = line.seq.unwrap_or(self.seq.saturating_add(1));
        let observe = Observe {
            watcher: line.watcher.unwrap_or(self.watcher),
            seq: seq.saturating_add(self.extra),
            asked: line.asked.unwrap_or(0),
            age_ms: line.age_ms.unwrap_or(0),
            sent_at_ms: line.sent_at_ms,
            complete: line.complete.unwrap_or(matches!(view, View::Snapshot { .. } | View::Unchanged)),
            view,
        };
        let parts = split(observe)
            .ok_or("longer than a frame, 1 MiB, and not a whole snapshot, which could be split")?;
        self.seq = seq;
        self.extra = self.extra.saturating_add(parts.len() as u64 - 1);
        Ok(parts)
    }
}

/// Splits a whole snapshot that does not fit a frame into parts that do. `None` if the observation cannot be
/// split.
fn split(observe: Observe) -> Option<Vec<Observe>> {
    if fits(&observe) {
        return Some(vec![observe]);
    }
    let Observe { watcher, seq, asked, age_ms, sent_at_ms, complete, view } = observe;
    let View::Snapshot { state, part: 0, more: false } = view else { return None };
    let views = view_parts::snapshot(state).into_iter().zip(seq..);
    let parts = views.map(|(view, seq)| Observe { watcher, seq, asked, age_ms, sent_at_ms, complete, view });
    let parts: Vec<Observe> = parts.collect();
    parts.iter().all(fits).then_some(parts)
}

/// True if it fits a frame, for any number of the call.
fn fits(observe: &Observe) -> bool {
    let request = Request::Observe(observe.clone());
    frame::encode(&Call { id: u64::MAX, op: None, lock: None, request }).is_ok()
}

/// The view in an object: the value of the key `view`, or the only other member.
fn view_of(view: Option<Value>, rest: Map<String, Value>) -> Result<Value, String> {
    match (view, rest.len()) {
        (Some(view), 0) => Ok(view),
        (None, 1) => Ok(Value::Object(rest)),
        (None, 0) => Err("no view".to_owned()),
        _ => Err(format!(
            "these keys cannot be combined: {}",
            rest.keys().cloned().collect::<Vec<_>>().join(", ")
        )),
    }
}

/// Parses a view. A snapshot that consists of its state only is a whole one.
fn read(mut value: Value) -> Result<View, String> {
    if let Some(Value::Object(snapshot)) = value.get_mut("snapshot") {
        if !snapshot.contains_key("state") {
            let state = Value::Object(std::mem::take(snapshot));
            snapshot.insert("state".to_owned(), state);
        }
        snapshot.entry("part").or_insert(0.into());
        snapshot.entry("more").or_insert(false.into());
    }
    let view = View::deserialize(&value).map_err(|error| error.to_string())?;
    let known = serde_json::to_value(&view).map_err(|error| error.to_string())?;
    match unknown_key(&value, &known) {
        Some(key) => Err(format!("unknown key {key:?}")),
        None => Ok(view),
    }
}

/// A key in `value` that `known`, which has every key of its type, does not have.
fn unknown_key<'a>(value: &'a Value, known: &Value) -> Option<&'a str> {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) => value.iter().find_map(|(key, value)| {
            known.get(key).map_or(Some(key.as_str()), |known| unknown_key(value, known))
        }),
        (Value::Array(value), Value::Array(known)) => {
            value.iter().zip(known).find_map(|(value, known)| unknown_key(value, known))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use protocol::TmuxSessionId;
    use protocol::diff::Change;
    use protocol::tmux::{Server, TmuxSession, TmuxState};
    use serde_json::json;

    use super::*;

    const EMPTY: &str = r#"{"server":"absent","sessions":{},"panes":{}}"#;

    fn lines() -> Lines {
        Lines { watcher: 7, seq: 0, extra: 0 }
    }

    fn take(line: &str) -> Result<Observe, String> {
        let mut all = lines().parse(line.as_bytes())?;
        assert_eq!(all.len(), 1);
        Ok(all.remove(0))
    }

    fn whole(view: View, complete: bool) -> Observe {
        Observe { watcher: 7, seq: 1, asked: 0, age_ms: 0, sent_at_ms: None, complete, view }
    }

    fn snapshot() -> View {
        View::Snapshot { state: TmuxState::default(), part: 0, more: false }
    }

    #[test]
    fn a_line_of_watch_is_parsed_unchanged() {
        let session = TmuxSession::bare("a\n\"é", 1);
        let sessions = [(TmuxSessionId(3), session.clone())].into();
        let state = TmuxState { sessions, server: Server::unknown("why"), ..TmuxState::default() };
        let changes = vec![Change::Session(TmuxSessionId(3), session), Change::SessionGone(TmuxSessionId(4))];
        let views = [
            View::Snapshot { state, part: 3, more: true },
            View::Diff(changes),
            View::Unchanged,
            View::Alive,
            snapshot(),
        ];
        for view in views {
            for (seq, complete) in [(u64::MAX - 1, true), (0, false)] {
                let (watcher, sent_at_ms, view) = (u64::MAX, Some(7), view.clone());
                let observe = Observe { watcher, seq, asked: 5, age_ms: 6, sent_at_ms, complete, view };
                let line = serde_json::to_string(&observe).unwrap();
                assert_eq!(take(&line), Ok(observe), "{line}");
            }
        }
    }

    #[test]
    fn missing_keys_have_defaults() {
        let gone = View::Diff(vec![Change::SessionGone(TmuxSessionId(3))]);
        let good = [
            (format!(r#"{{"snapshot":{EMPTY}}}"#), whole(snapshot(), true)),
            (format!(r#"{{"snapshot":{{"state":{EMPTY}}}}}"#), whole(snapshot(), true)),
            (format!(r#"{{"view":{{"snapshot":{EMPTY}}}}}"#), whole(snapshot(), true)),
            (format!(r#"{{"asked":3,"snapshot":{EMPTY}}}"#), Observe { asked: 3, ..whole(snapshot(), true) }),
            (r#"{"diff":[{"session_gone":"$3"}]}"#.to_owned(), whole(gone.clone(), false)),
            (r#"{"view":{"diff":[{"session_gone":"$3"}]}}"#.to_owned(), whole(gone, false)),
            (r#"{"diff":[]}"#.to_owned(), whole(View::Diff(vec![]), false)),
            ("  \"unchanged\"\r\n".to_owned(), whole(View::Unchanged, true)),
            (r#"{"view":"unchanged","complete":false}"#.to_owned(), whole(View::Unchanged, false)),
            ("\"alive\"".to_owned(), whole(View::Alive, false)),
            (
                r#"{"view":"alive","seq":9,"watcher":2,"age_ms":4}"#.to_owned(),
                Observe { seq: 9, watcher: 2, age_ms: 4, ..whole(View::Alive, false) },
            ),
        ];
        for (line, expected) in good {
            assert_eq!(take(&line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn errors_name_the_defect() {
        let bad = [
            ("{", "EOF"),
            ("nonsense", "expected"),
            ("5", ""),
            ("null", ""),
            ("[]", ""),
            ("\"asleep\"", "asleep"),
            ("{}", "no view"),
            (r#"{"seq":4}"#, "no view"),
            (r#"{"seq":-1,"view":"alive"}"#, "-1"),
            (r#"{"seq":"1","view":"alive"}"#, "string"),
            (r#"{"complete":1,"view":"alive"}"#, "integer"),
            (r#"{"view":"alive","opp":1}"#, "opp"),
            (r#"{"snapshto":{}}"#, "snapshto"),
            (r#"{"diff":[],"opp":1}"#, "opp"),
            (r#"{"diff":[],"snapshot":{}}"#, "snapshot"),
            (r#"{"diff":{}}"#, "sequence"),
            (r#"{"diff":[{"session_gone":"3"}]}"#, "$3"),
            (r#"{"diff":[{"session_gone":"$3","opp":1}]}"#, "map"),
            (r#"{"diff":[{"session":["$3",{"name":"a","created_at":1,"attached":0,"opp":1}]}]}"#, "\"opp\""),
            (r#"{"diff":[{"session":["$3",{"name":"a","created_at":1}]}]}"#, "attached"),
            (r#"{"snapshot":{"server":"absent","sessions":{}}}"#, "panes"),
            (r#"{"snapshot":{"server":"absent","sessions":{},"panes":{},"opp":1}}"#, "\"opp\""),
            (r#"{"snapshot":{"server":"gone","sessions":{},"panes":{}}}"#, "gone"),
            (r#"{"snapshot":[]}"#, ""),
            ("\"alive\" \"alive\"", "trailing"),
        ];
        for (line, says) in bad {
            let error = take(line).expect_err(line);
            assert!(error.contains(says), "{line}: {error}");
        }
        let name = "x".repeat(2 << 20);
        let change = json!({"session": ["$3", {"name": name, "created_at": 1, "attached": 0}]});
        assert!(take(&json!({ "diff": [change] }).to_string()).unwrap_err().contains("1 MiB"));
        assert!(lines().parse(b"\xff").is_err());
    }

    #[test]
    fn numbers_go_on_and_gaps_stay_gaps() {
        let mut lines = lines();
        let mut seqs = |line: &str| -> Vec<u64> {
            lines.parse(line.as_bytes()).unwrap().iter().map(|observe| observe.seq).collect()
        };
        assert_eq!((seqs("\"alive\""), seqs("\"alive\"")), (vec![1], vec![2]));
        assert_eq!(seqs(r#"{"seq":9,"view":"alive"}"#), [9]);
        assert_eq!(seqs("\"alive\""), [10]);
        let session = |name| json!({"name": name, "created_at": 1, "attached": 0});
        let name = "x".repeat(16 << 10);
        let sessions: Map<String, Value> = (0..70).map(|n| (format!("${n}"), session(&name))).collect();
        let large = json!({"snapshot": {"server": "absent", "sessions": sessions, "panes": {}}});
        assert_eq!(seqs(&large.to_string()), [11, 12, 13]);
        assert_eq!(seqs(r#"{"seq":12,"view":"alive"}"#), [14], "the next line is the next frame");
        assert_eq!(seqs(r#"{"seq":12,"view":"alive"}"#), [14], "a repeated number");
        assert_eq!(seqs(r#"{"seq":14,"view":"alive"}"#), [16], "a gap");
    }

    #[test]
    fn a_large_snapshot_comes_in_parts() {
        let name = "x".repeat(16 << 10);
        let session = |n| (TmuxSessionId(n), TmuxSession::bare(name.clone(), 1));
        let whole = TmuxState { sessions: (0..90).map(session).collect(), ..TmuxState::default() };
        let line = json!({"asked": 3, "snapshot": whole}).to_string();
        let mut joined = None;
        for (at, observe) in (0..).zip(lines().parse(line.as_bytes()).unwrap()) {
            let View::Snapshot { state, part, more } = observe.view.clone() else { panic!("{at}") };
            assert_eq!((observe.seq, observe.asked, part, more), (u64::from(at) + 1, 3, at, at < 2));
            assert!(observe.complete && fits(&observe));
            joined = Some(view_parts::join(joined, state));
        }
        assert_eq!(joined, Some(whole.clone()));
        // A part cannot be split again.
        let part = json!({"snapshot": {"state": whole, "part": 1}}).to_string();
        assert!(lines().parse(part.as_bytes()).unwrap_err().contains("1 MiB"));
    }

    #[test]
    fn a_bad_line_leaves_no_trace() {
        let mut lines = lines();
        assert!(lines.parse(b"{}").is_err());
        assert_eq!(lines.parse(b"\"alive\"").unwrap()[0].seq, 1);
        assert!(Lines::new().unwrap().watcher < 1 << EXACT_BITS);
    }
}
