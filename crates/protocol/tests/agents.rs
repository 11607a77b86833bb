//! Golden vectors of types about agents and their terminals, and of hooks' spool files.

use std::collections::BTreeMap;

use protocol::hook::{
    AwakeTime, Decision, Hook, HookEvent, Notice, SPOOL_VERSION, SpooledHook, Start, ToolUse,
};
use protocol::reply::{Terminal, Theme};
use protocol::request::{Approve, Input, Output, Resize};
use protocol::thought::{Publish, RestState, StreamPosition, Thought, ThoughtSource, ThoughtState};
use protocol::tmux::{ServerProblem, TmuxTransport};
use protocol::{
    Activity, ActivityState, Ask, AskKind, ErrorCode, Event, Lifecycle, Notes, SessionId, Source, Tag,
    Timestamp,
};
use serde_json::Value;

use crate::golden::{Vectors, compare, file, sample};

#[test]
fn agents() {
    Vectors::default()
        .of_enum_in("agent-event", Event::Agent)
        .of_struct::<Activity>("activity")
        .of_enum::<ActivityState>("activity-state")
        .of_enum::<Source>("source")
        .of_struct::<Ask>("ask")
        .of_enum::<AskKind>("ask-kind")
        .of_struct::<Notes>("notes")
        .of_struct::<Hook>("hook")
        .of_enum::<HookEvent>("signal")
        .of_enum::<Start>("start")
        .of_enum::<Notice>("notice")
        .of_struct::<ToolUse>("tool-use")
        .of_struct::<Decision>("decision")
        .of_struct::<Approve>("approve")
        .check("agents");
}

#[test]
fn thoughts() {
    Vectors::default()
        .of_struct::<Thought>("thought")
        .of_struct::<Publish>("publish")
        .of_struct::<StreamPosition>("place")
        .of_enum::<ThoughtState>("thought-state")
        .of_enum::<ThoughtSource>("thought-source")
        .of_enum::<RestState>("rest-state")
        .of_struct::<Theme>("theme")
        .check("thoughts");
}

#[test]
fn terminals() {
    Vectors::default()
        .of_struct::<Terminal>("terminal")
        .of_struct::<Output>("output")
        .of_struct::<Input>("input")
        .of_struct::<Resize>("resize")
        .check("terminals");
}

/// The names in JSON, in `as_str` and in `FromStr` are the same.
#[test]
fn the_words_are_those_of_the_wire() {
    assert_eq!(ActivityState::ALL.map(ActivityState::as_str), *sample::<ActivityState>(0, false).1);
    assert_eq!(Source::default(), Source::Nothing);
    let named = |value: Value, word: &str| assert_eq!(value, word);
    for index in 0..sample::<Source>(0, false).1.len() {
        let source = sample::<Source>(index, false).0;
        named(serde_json::to_value(source).unwrap(), source.as_str());
    }
    for index in 0..sample::<AskKind>(0, false).1.len() {
        let kind = sample::<AskKind>(index, false).0;
        named(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
    fn words<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str) -> Vec<&'static str> {
        all.iter().copied().map(word).collect()
    }
    let of = [
        (words(&ThoughtState::ALL, ThoughtState::as_str), sample::<ThoughtState>(0, false).1),
        (words(&ThoughtSource::ALL, ThoughtSource::as_str), sample::<ThoughtSource>(0, false).1),
        (words(&RestState::ALL, RestState::as_str), sample::<RestState>(0, false).1),
    ];
    for (words, wire) in of {
        assert_eq!(words, wire, "all of them, in the order of the wire");
    }
    for state in RestState::ALL {
        assert_eq!(state.as_str().parse(), Ok(state));
    }
    // On the wire, every other enum has the names that it has in options.
    Lifecycle::ALL.into_iter().for_each(|one| named(serde_json::to_value(one).unwrap(), one.as_str()));
    ErrorCode::ALL.into_iter().for_each(|one| named(serde_json::to_value(one).unwrap(), one.as_str()));
    ServerProblem::ALL.into_iter().for_each(|one| named(serde_json::to_value(one).unwrap(), one.as_str()));
    TmuxTransport::ALL.into_iter().for_each(|one| named(serde_json::to_value(one).unwrap(), one.as_str()));
    assert_eq!("asleep".parse::<ThoughtState>().unwrap_err(), "a state is one of active, holding, sleeping");
}

/// A hook's report of this event with every field set.
fn spooled(signal: HookEvent) -> SpooledHook {
    let hook = Hook {
        session: SessionId(12),
        tag: Tag([0xab; 16]),
        id: 0xfedc_ba98_7654_3210,
        at: Timestamp(1_700_000_000_123),
        awake: Some(AwakeTime { boot: "3f1c".to_owned(), ms: 86_400_123 }),
        agent: "claude".to_owned(),
        conversation: Some("0b5c7a52-6f0e-4f7e-9d0c-2f3a1c9e8d71".to_owned()),
        transcript: Some("/home/me/.claude/projects/x/0b5c7a52.jsonl".into()),
        signal,
    };
    SpooledHook { version: SPOOL_VERSION, hook }
}

/// Adds a field of a later version to every struct.
fn with_more(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(with_more);
        // An enum variant is an object with a single key.
        if fields.len() > 1 {
            fields.insert("of_a_later_version".to_owned(), serde_json::json!([{"x": 1}]));
        }
    }
}

/// Removes absent fields.
fn with_less(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(with_less);
    }
}

/// Spool files of earlier versions remain readable.
#[test]
fn files_of_a_hook() {
    let mut files = BTreeMap::new();
    for (index, variant) in sample::<HookEvent>(0, false).1.iter().enumerate() {
        for (full, amount) in [(true, "full"), (false, "least")] {
            let report = spooled(sample::<HookEvent>(index, full).0);
            files.extend([file(&format!("spooled.{variant}.{amount}"), &report)]);
            for change in [with_more, with_less] {
                let mut json = serde_json::to_value(&report).unwrap();
                change(&mut json);
                assert_eq!(serde_json::from_value::<SpooledHook>(json.clone()).unwrap(), report, "{json}");
            }
        }
    }
    let bare = spooled(HookEvent::Interrupted);
    let hook = Hook { awake: None, conversation: None, transcript: None, ..bare.hook };
    files.extend([file("spooled.bare", &SpooledHook { hook, ..bare })]);
    compare("hooks.json.txt", &files);
}
