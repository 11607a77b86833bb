//! Published thoughts, and what they inherit.

use pool::agent::publish_thought;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::thought::{
    FINGERPRINT_MAX, Publish, RestState, STREAMS_MAX, StreamPosition, THOUGHT_MAX, Thought, ThoughtSource,
    ThoughtState,
};
use protocol::{ErrorCode, SessionRef, Timestamp};

const NOW: Timestamp = Timestamp(500);

fn nothing() -> Publish {
    Publish::to(SessionRef("s".to_owned()))
}

fn place(stream: &str, seq: u64) -> Option<StreamPosition> {
    Some(StreamPosition { stream: stream.to_owned(), seq })
}

/// A thought with every field.
fn full() -> Thought {
    Thought {
        text: Some("testing the parser".to_owned()),
        state: ThoughtState::Active,
        source: ThoughtSource::Llm,
        rest_state: Some(RestState::Active),
        commit_candidate: true,
        objective_changed_at: Some(Timestamp(100)),
        objective: Some("a".to_owned()),
        token_count: 1000,
        context_limit: 200_000,
        updated_at: Timestamp(400),
        place: place("one", 7),
        other_streams: Vec::new(),
    }
}

fn after(before: &Thought, asked: &Publish) -> Thought {
    publish_thought(Some(before), asked, NOW).unwrap().unwrap()
}

#[test]
fn w36_all_that_is_said_is_kept() {
    let asked = Publish {
        text: Some("reading".to_owned()),
        state: Some(ThoughtState::Sleeping),
        source: Some(ThoughtSource::Llm),
        rest_state: Some(RestState::DeepSleep),
        commit_candidate: Some(false),
        objective: Some("b".to_owned()),
        objective_changed_at: Some(Timestamp(222)),
        token_count: Some(5),
        context_limit: Some(6),
        updated_at: Some(Timestamp(333)),
        place: place("two", 1),
        ..nothing()
    };
    let expected = Thought {
        text: Some("reading".to_owned()),
        state: ThoughtState::Sleeping,
        source: ThoughtSource::Llm,
        rest_state: Some(RestState::DeepSleep),
        commit_candidate: false,
        objective_changed_at: Some(Timestamp(222)),
        objective: Some("b".to_owned()),
        token_count: 5,
        context_limit: 6,
        updated_at: Timestamp(333),
        place: place("two", 1),
        other_streams: Vec::new(),
    };
    assert_eq!(publish_thought(None, &asked, NOW), Ok(Some(expected.clone())));
    let other_streams = place("one", 7).into_iter().collect();
    assert_eq!(after(&full(), &asked), Thought { other_streams, ..expected });
}

#[test]
fn w37_where_nothing_was_thought_it_holds_and_carries_forward() {
    let thought = publish_thought(None, &nothing(), NOW).unwrap().unwrap();
    assert_eq!(thought, Thought { updated_at: NOW, ..Thought::default() });
    assert_eq!((thought.state, thought.source), (ThoughtState::Holding, ThoughtSource::CarryForward));
    assert_eq!((thought.text, thought.rest_state, thought.token_count), (None, None, 0));
}

#[test]
fn w27_what_is_not_said_is_carried_forward() {
    let expected = Thought { source: ThoughtSource::CarryForward, updated_at: NOW, ..full() };
    assert_eq!(after(&full(), &nothing()), expected);
    let blank = Publish { text: Some(" \n".to_owned()), ..nothing() };
    assert_eq!(after(&full(), &blank), expected, "a blank thought is none");
}

#[test]
fn w27_the_last_change_of_the_objective_stays_known() {
    let changed = |before: &Thought, objective: Option<&str>, at: Option<u64>| {
        let objective = objective.map(str::to_owned);
        let thought =
            after(before, &Publish { objective, objective_changed_at: at.map(Timestamp), ..nothing() });
        (thought.objective, thought.objective_changed_at.map(|at| at.0))
    };
    let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
    assert_eq!(changed(&full(), None, None), (a.clone(), Some(100)));
    assert_eq!(changed(&full(), Some("a"), None), (a.clone(), Some(100)), "the same is no change");
    assert_eq!(changed(&full(), Some("b"), None), (b.clone(), Some(500)), "another is one, now");
    assert_eq!(changed(&full(), Some("b"), Some(123)), (b, Some(123)), "unless it is said when");
    assert_eq!(changed(&full(), None, Some(123)), (a.clone(), Some(123)));
    assert_eq!(changed(&Thought::default(), Some("a"), None), (a, None), "the first is no change");
}

#[test]
fn w27_when_it_was_thought_is_the_publishers_word() {
    let at = |at: Option<u64>| {
        after(&full(), &Publish { updated_at: at.map(Timestamp), ..nothing() }).updated_at.0
    };
    assert_eq!((at(Some(1)), at(Some(900)), at(None)), (1, 900, 500));
}

#[test]
fn w27_the_fingerprint_is_overwritten() {
    let thought = after(&full(), &Publish { objective: Some("zzz".to_owned()), ..nothing() });
    assert_eq!(thought.objective.as_deref(), Some("zzz"));
}

#[test]
fn w24_counts_count_only_above_zero() {
    for (said, kept) in [(None, (1000, 200_000)), (Some(0), (1000, 200_000)), (Some(9), (9, 9))] {
        let thought = after(&full(), &Publish { token_count: said, context_limit: said, ..nothing() });
        assert_eq!((thought.token_count, thought.context_limit), kept, "{said:?}");
    }
}

#[test]
fn w24_a_new_state_is_not_shown_with_the_depth_of_the_last_one() {
    let state = Some(ThoughtState::Sleeping);
    assert_eq!(after(&full(), &Publish { state, ..nothing() }).rest_state, None);
    let rest_state = Some(RestState::Drowsy);
    assert_eq!(after(&full(), &Publish { state, rest_state, ..nothing() }).rest_state, rest_state);
    assert_eq!(after(&full(), &Publish { rest_state, ..nothing() }).state, ThoughtState::Active);
}

#[test]
fn w27_a_fixed_text_for_one_that_sleeps_keeps_the_last_thought() {
    let sleeps = Publish {
        text: Some("Sleeping.".to_owned()),
        source: Some(ThoughtSource::StaticSleeping),
        state: Some(ThoughtState::Sleeping),
        ..nothing()
    };
    let thought = after(&full(), &sleeps);
    assert_eq!(thought.text.as_deref(), Some("testing the parser"));
    assert_eq!((thought.source, thought.state), (ThoughtSource::CarryForward, ThoughtState::Sleeping));
    let first = publish_thought(None, &sleeps, NOW).unwrap().unwrap();
    assert_eq!((first.text, first.source), (None, ThoughtSource::CarryForward));
}

#[test]
fn a_thought_is_a_models_where_nothing_else_is_said() {
    let thinks = |source| after(&full(), &Publish { text: Some("x".to_owned()), source, ..nothing() });
    assert_eq!(thinks(None).source, ThoughtSource::Llm);
    let carried = thinks(Some(ThoughtSource::CarryForward));
    assert_eq!((carried.text.as_deref(), carried.source), (Some("x"), ThoughtSource::CarryForward));
}

#[test]
fn w36_the_place_in_a_stream_says_what_is_newer() {
    let applies = |before: Option<StreamPosition>, next: Option<StreamPosition>| {
        let before = Thought { place: before, ..full() };
        publish_thought(Some(&before), &Publish { place: next, ..nothing() }, NOW).unwrap().is_some()
    };
    for (before, next, expected, why) in [
        (place("a", 7), place("a", 8), true, "later"),
        (place("a", 7), place("a", 7), false, "again"),
        (place("a", 7), place("a", 1), false, "older"),
        (place("a", 7), place("b", 1), true, "another run"),
        (place("a", 7), place("b", 5), true, "another run, of which the first four were lost"),
        (place("a", 7), None, true, "no place"),
        (None, place("a", 3), true, "the first"),
        (None, None, true, "none anywhere"),
    ] {
        assert_eq!(applies(before, next), expected, "{why}");
    }
}

#[test]
fn w27_what_has_no_place_leaves_that_of_the_stream() {
    let manual = after(&full(), &nothing());
    assert_eq!(manual.place, place("one", 7));
    let late = Publish { place: place("one", 6), ..nothing() };
    assert_eq!(publish_thought(Some(&manual), &late, NOW), Ok(None), "the stream goes on where it was");
}

#[test]
fn what_is_too_long_or_no_place_is_refused() {
    let long = |n: usize| Some("x".repeat(n));
    let refused = |asked: Publish| publish_thought(None, &asked, NOW).map_err(|refusal| refusal.code).err();
    assert_eq!(refused(Publish { text: long(THOUGHT_MAX), ..nothing() }), None);
    assert_eq!(refused(Publish { objective: long(FINGERPRINT_MAX), ..nothing() }), None);
    for asked in [
        Publish { text: long(THOUGHT_MAX + 1), ..nothing() },
        Publish { objective: long(FINGERPRINT_MAX + 1), ..nothing() },
        Publish { objective: long(0), ..nothing() },
        Publish { place: place("", 1), ..nothing() },
        Publish { place: place("a", 0), ..nothing() },
        Publish {
            place: Some(StreamPosition { stream: "x".repeat(FINGERPRINT_MAX + 1), seq: 1 }),
            ..nothing()
        },
    ] {
        assert_eq!(refused(asked.clone()), Some(ErrorCode::Usage), "{asked:?}");
    }
}

/// Arbitrary publications.
fn said() -> impl Strategy<Value = Publish> {
    let text = prop::option::of(prop::sample::select(vec!["", "one", "two"]));
    let state = prop::option::of(prop::sample::select(&ThoughtState::ALL[..]));
    let source = prop::option::of(prop::sample::select(&ThoughtSource::ALL[..]));
    let place = prop::option::of((prop::sample::select(vec!["a", "b"]), 1_u64..5));
    let numbers = (prop::option::of(0_u64..3), prop::option::of(0_u64..9));
    (text, state, source, place, numbers).prop_map(|(text, state, source, place, (count, at))| Publish {
        text: text.map(str::to_owned),
        state,
        source,
        token_count: count,
        updated_at: at.map(Timestamp),
        place: place.map(|(stream, seq)| StreamPosition { stream: stream.to_owned(), seq }),
        ..nothing()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each field against a list of all accepted publications: it has the last published value.
    #[test]
    fn w36_no_stream_is_locked_out_and_each_field_is_the_last_that_was_said(all in vec(said(), 1..30)) {
        let (mut thought, mut taken): (Option<Thought>, Vec<Publish>) = (None, Vec::new());
        for asked in all {
            let mut places = taken.iter().filter_map(|one| one.place.as_ref());
            let older = |next: &StreamPosition| places.any(|l| l.stream == next.stream && l.seq >= next.seq);
            let ignored = asked.place.as_ref().is_some_and(older);
            let next = publish_thought(thought.as_ref(), &asked, NOW).unwrap();
            prop_assert_eq!(next.is_none(), ignored);
            let Some(next) = next else { continue };
            taken.push(asked.clone());
            let is_text = |one: &&Publish| {
                one.source != Some(ThoughtSource::StaticSleeping) && one.text.as_deref().is_some_and(|t| !t.is_empty())
            };
            let text = taken.iter().rev().find(is_text).and_then(|one| one.text.clone());
            let tokens = taken.iter().rev().find_map(|one| one.token_count.filter(|n| *n > 0));
            let state = taken.iter().rev().find_map(|one| one.state);
            prop_assert_eq!(&next.text, &text);
            prop_assert_eq!(next.token_count, tokens.unwrap_or(0));
            prop_assert_eq!(next.state, state.unwrap_or_default());
            prop_assert_eq!(next.updated_at, asked.updated_at.unwrap_or(NOW));
            prop_assert_ne!(next.source, ThoughtSource::StaticSleeping);
            thought = Some(next);
        }
    }
}

#[test]
fn w30_what_is_old_in_its_stream_is_old_whatever_came_between() {
    let publish = |before: &Thought, stream: &str, seq, text: &str| {
        let asked = Publish { text: Some(text.to_owned()), place: place(stream, seq), ..nothing() };
        publish_thought(Some(before), &asked, NOW)
    };
    let first = publish(&Thought::default(), "a", 5, "a5").unwrap().unwrap();
    let second = publish(&first, "b", 1, "b1").unwrap().unwrap();
    assert_eq!(publish(&second, "a", 4, "a4"), Ok(None), "late");
    assert_eq!(publish(&second, "a", 5, "a5"), Ok(None), "a repeat");
    assert_eq!(publish(&second, "b", 1, "b1"), Ok(None), "a repeat");
    let third = publish(&second, "a", 6, "a6").unwrap().unwrap();
    assert_eq!((third.place, third.other_streams), (place("a", 6), place("b", 1).into_iter().collect()));
    let mut many = second;
    for n in 0..20 {
        many = publish(&many, &n.to_string(), 1, "x").unwrap().unwrap();
    }
    assert_eq!(many.other_streams.len(), STREAMS_MAX);
}
