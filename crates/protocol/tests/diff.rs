//! Differences between observations.

use proptest::prelude::*;
use protocol::diff::{Change, diff};
use protocol::tmux::TmuxState;

use crate::any::any_of;

fn applied(mut state: TmuxState, changes: &[Change]) -> TmuxState {
    changes.iter().for_each(|change| state.apply(change.clone()));
    state
}

/// Returns two observations that overlap.
fn two() -> impl Strategy<Value = (TmuxState, TmuxState)> {
    (any_of::<TmuxState>(), any_of::<TmuxState>(), any::<bool>()).prop_map(|(before, mut after, related)| {
        if related {
            after.sessions.extend(before.sessions.clone());
            after.panes.extend(before.panes.clone().into_iter().skip(1));
        }
        (before, after)
    })
}

proptest! {
    #[test]
    fn a_diff_leads_from_one_to_the_other((before, after) in two()) {
        let changes = diff(&before, &after);
        let once = applied(before, &changes);
        prop_assert_eq!(&once, &after);
        prop_assert_eq!(applied(once, &changes), after, "twice is once");
    }

    #[test]
    fn a_diff_holds_nothing_more_than_what_changed((before, after) in two()) {
        prop_assert_eq!(diff(&after, &after), vec![]);
        let changes = diff(&before, &after);
        for left_out in 0..changes.len() {
            let mut fewer = changes.clone();
            fewer.remove(left_out);
            prop_assert_ne!(applied(before.clone(), &fewer), after.clone());
        }
    }
}
