//! The facts that an agent's own record of the conversation tells.

use agents::Adapter;
use agents::transcript::RecordedPrompt;
use pool::{Pool, agent};
use protocol::{Activity, ActivityState, Timestamp};

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1000)
}

#[test]
fn c04_an_earlier_prompt_with_the_same_text_in_the_record_confirms_nothing() {
    let said = |text: &str, seconds: Option<u64>, queued| RecordedPrompt {
        text: text.to_owned(),
        at: seconds.map(at),
        queued,
    };
    let go_on = |seconds, queued| said("go on", Some(seconds), queued);
    for (record, expected) in [
        (vec![], None),
        (vec![go_on(99, false)], None),
        (vec![go_on(99, false), go_on(101, false)], Some(101)),
        (vec![go_on(100, false)], Some(100)),
        (vec![go_on(101, true)], None),
        (vec![go_on(101, true), go_on(105, false)], Some(105)),
        (vec![said("go on", None, false)], None),
        (vec![said("go on with it", Some(101), false)], None),
    ] {
        let typed = (Adapter::Claude, "go on", at(100));
        let found = agent::recorded_prompt(&Pool::default(), at(110), typed, &record);
        assert_eq!(found, expected.map(|seconds| (at(seconds), "go on")), "{record:?}");
    }
}

#[test]
fn c04_the_end_of_an_earlier_turn_in_the_record_ends_nothing() {
    use ActivityState::{Attention, Busy, Error, Idle, Unknown};
    // The agent is in this state since second 100, and it is second 120.
    for (state, accepted, ended, expected) in [
        (Busy, None, 90, None),
        (Busy, None, 100, Some(102)),
        (Busy, None, 110, Some(110)),
        (Busy, None, 117, Some(117)),
        // Its hook may be on its way.
        (Busy, None, 118, None),
        (Attention, None, 110, None),
        (Idle, None, 110, None),
        (Idle, Some(105), 104, None),
        (Idle, Some(105), 105, Some(105)),
        (Unknown, Some(105), 119, Some(119)),
        (Error, Some(105), 119, Some(119)),
    ] {
        let known = Activity { state, since: at(100), ..Activity::default() };
        let found = agent::recorded_end(
            &Pool::default(),
            at(120),
            (&known, Some(at(102)), accepted.map(at)),
            at(ended),
        );
        assert_eq!(found, expected.map(at), "{state:?}, accepted {accepted:?}, ended {ended}");
    }
}
