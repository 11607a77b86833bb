//! Decisions on agents' requests for a permission: each reaches its own request, as it was made.

use protocol::hook::Decision;

use super::Judge;

impl Judge {
    /// Returns the reason that is given with the decision on a request, and with no other.
    pub(crate) fn reason_for(ask: u64) -> String {
        format!("for {ask}")
    }

    /// Notes that somebody is about to decide on a request with the reason that is its own.
    pub(crate) fn to_decide(&self, ask: u64, allow: bool) {
        self.state().to_decide.insert(ask, allow);
    }

    /// Checks a decision that the hook of a request gets.
    pub(crate) fn decided(&self, ask: u64, decision: &Decision) {
        let mut state = self.state();
        let is_first = state.decided.insert(ask, decision.allow).is_none();
        let meant = state.to_decide.get(&ask).copied();
        drop(state);
        let is_own = |reason: &String| *reason == Self::reason_for(ask) && meant == Some(decision.allow);
        if !is_first || !decision.reason.as_ref().is_none_or(is_own) {
            self.violated(format!("O: {ask} got the decision {decision:?}; it is the first: {is_first}"));
        }
    }

    /// True if the hook of a request has got a decision.
    pub(crate) fn has_decision(&self, ask: u64) -> bool {
        self.state().decided.contains_key(&ask)
    }

    /// Checks that a request that is said to be answered has got that decision.
    pub(crate) fn check_answered(&self, ask: u64, allowed: bool) {
        self.count("checked:answered");
        let decided = self.state().decided.get(&ask).copied();
        if decided != Some(allowed) {
            self.violated(format!("O: {ask} is said to be answered ({allowed}), and got {decided:?}"));
        }
    }
}
