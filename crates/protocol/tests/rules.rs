//! Names of reap rules and actions: the same everywhere.

use std::collections::BTreeMap;

use protocol::policy::Policy;
use protocol::reap::{Action, Rule};

use crate::golden::sample;

#[test]
fn every_rule_has_one_word() {
    let (_, variants) = sample::<Rule>(0, false);
    assert_eq!(Rule::ALL.map(Rule::as_str), *variants, "all of them, in the order of the wire");
    for rule in Rule::ALL {
        assert_eq!(rule.as_str().parse(), Ok(rule));
        assert_eq!(rule.as_str().replace('_', "-").parse(), Ok(rule), "as options are written");
    }
}

#[test]
fn every_action_has_one_word() {
    let (_, variants) = sample::<Action>(0, false);
    assert_eq!(Action::ALL.map(Action::as_str), *variants, "all of them, in the order of the wire");
    for action in Action::ALL {
        assert_eq!(action.as_str().parse(), Ok(action));
    }
}

#[test]
fn what_is_no_word_is_answered_with_the_words_there_are() {
    for word in ["", "Hung", "hung ", "idle", "zombie pane"] {
        let why = word.parse::<Rule>().unwrap_err();
        assert!(Rule::ALL.iter().all(|rule| why.contains(rule.as_str())), "{word:?}: {why}");
    }
    for word in ["", "Kill", "park ", "stop"] {
        let why = word.parse::<Action>().unwrap_err();
        assert!(Action::ALL.iter().all(|action| why.contains(action.as_str())), "{word:?}: {why}");
    }
}

#[test]
fn only_what_is_about_a_session_can_start_or_park_it() {
    let whole =
        ["stale_agent", "hung", "idle_session", "memory", "disk", "run_time", "host_memory", "host_disk"];
    for rule in Rule::ALL {
        let of_session = whole.contains(&rule.as_str());
        assert_eq!(rule.applies_to_session(), of_session, "{rule:?}");
        let allowed = Action::ALL.map(|action| rule.allows(action));
        // Leftovers of a session occupy its slot until they are ended.
        let report = !["zombie_pane", "leftovers"].contains(&rule.as_str());
        // A session is not the cause of the machine's shortage, so it is not killed for it.
        let about_machine = rule.as_str().starts_with("host_");
        assert_eq!(rule.is_about_machine(), about_machine, "{rule:?}");
        let restarts = of_session && !about_machine;
        assert_eq!(allowed, [!about_machine, restarts, of_session, report], "{rule:?}");
    }
}

/// As in configuration files, exports and scripts.
#[test]
fn a_policy_names_rules_by_their_words() {
    let reap = BTreeMap::from([(Rule::IdleSession, Action::Report), (Rule::Hung, Action::Restart)]);
    let policy = Policy { reap, ..Policy::default() };
    let json = serde_json::to_value(&policy).unwrap();
    assert_eq!(json["reap"], serde_json::json!({"hung": "restart", "idle_session": "report"}));
    let mut earlier = json;
    earlier.as_object_mut().unwrap().remove("reap");
    let earlier: Policy = serde_json::from_value(earlier).unwrap();
    assert_eq!(earlier, Policy::default(), "before there were rules");
}
