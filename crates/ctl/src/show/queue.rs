//! Messages and workers as text.

use protocol::reply::GeneratorView;
use protocol::{Breaker, Holder, Message, MessageReason, Step, Timestamp};

use crate::show::escape;
use crate::show::json::json_name;
use crate::show::out::Style;
use crate::show::table::Table;
use crate::show::time::{self, when};

/// Returns a table of messages.
pub(crate) fn messages(messages: &[Message], style: Style, now: Timestamp) -> String {
    let mut table = Table::new(&["ID", "KIND", "STATE", "TRIES", "SIZE", "QUEUED", "KEY", "REASON"]);
    for message in messages {
        table.row([
            message.id.to_string(),
            message.kind.clone(),
            json_name(&message.status.state),
            message.status.attempts.to_string(),
            message.size.to_string(),
            when(message.created_at, style, now),
            message.key.clone().unwrap_or_default(),
            reason(message.status.reason.as_ref()),
        ]);
    }
    table.render()
}

fn reason(reason: Option<&MessageReason>) -> String {
    reason.map(ToString::to_string).unwrap_or_default()
}

/// Returns a table of dead messages.
pub(crate) fn dead(messages: &[Message], style: Style, now: Timestamp) -> String {
    let mut table = Table::new(&["ID", "KIND", "TRIES", "SIZE", "DEAD", "KEY", "REASON"]);
    for message in messages {
        table.row([
            message.id.to_string(),
            message.kind.clone(),
            format!("{}/{}", message.status.attempts, message.max_attempts),
            message.size.to_string(),
            when(message.status.changed_at, style, now),
            message.key.clone().unwrap_or_default(),
            reason(message.status.reason.as_ref()),
        ]);
    }
    table.render()
}

/// Returns the history of a message, a line per step.
pub(crate) fn history(steps: &[Step]) -> String {
    let mut table = Table::new(&[]);
    for step in steps {
        let tries = format!("try {}", step.attempts);
        table.row([time::rfc3339(step.at), json_name(&step.state), tries, reason(step.reason.as_ref())]);
    }
    table.render()
}

/// Formats who has a message in work: `held by worker 4 of @w, pid 60`.
pub(crate) fn holder(holder: &Holder, its: Option<&GeneratorView>) -> String {
    let role = its.map_or("worker", |view| view.role.as_str());
    let id = holder.generator.map(|id| format!(" {id}")).unwrap_or_default();
    let of = its.map(|view| match &view.name {
        Some(name) => name.for_people().into_owned(),
        None => escape::line(&view.sessions),
    });
    let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
    let pid = holder.process.map(|process| format!(", pid {}", process.pid)).unwrap_or_default();
    format!("held by {role}{id}{of}{pid}\n")
}

/// Formats the result of a message, on lines of its own if it has several.
pub(crate) fn result(text: &str) -> String {
    let text = escape::lines(text.trim_end());
    if text.contains('\n') {
        let lines: String = text.lines().map(|line| format!("  {line}\n")).collect();
        format!("result:\n{lines}")
    } else {
        format!("result: {text}\n")
    }
}

/// Returns a table of workers and agents.
pub(crate) fn generators(views: &[GeneratorView], style: Style, now: Timestamp) -> String {
    let header =
        ["ID", "SESSION", "SESSIONS", "ROLE", "GENERATION", "KINDS", "PID", "SINCE", "ACTIVE", "HOLDS"];
    let mut table = Table::new(&header);
    for view in views {
        let holds = view.holds.iter().map(|held| format!("{}({})", held.held.id, held.kind));
        table.row([
            view.id.map(|id| id.to_string()).unwrap_or_default(),
            view.session.map(|session| session.to_string()).unwrap_or_default(),
            view.sessions.clone(),
            view.role.clone(),
            view.generation.to_string(),
            view.kinds.join(","),
            view.process.map(|process| process.pid.to_string()).unwrap_or_default(),
            when(view.since, style, now),
            when(view.last_activity_at, style, now),
            holds.collect::<Vec<_>>().join(" "),
        ]);
    }
    table.render()
}

/// Formats an open circuit breaker: `summarize failed 3 times in a row, last: exit 1; next probe in 40s`.
pub(crate) fn breaker(kind: &str, breaker: &Breaker, now: Timestamp) -> String {
    let times = if breaker.failures == 1 { "once".to_owned() } else { format!("{} times", breaker.failures) };
    let last = breaker.reason.as_deref().map(|reason| format!(", last: {reason}")).unwrap_or_default();
    let probe = breaker.probe_at.map(|at| format!("; next probe {}", time::until(at, now)));
    format!("{kind} failed {times} in a row{last}{}", probe.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use protocol::MessageState;

    use super::*;
    use crate::testing;

    const NOW: Timestamp = Timestamp(1_700_000_300_000);

    #[test]
    fn messages_are_listed() {
        let mut message = testing::message(7);
        message.key = Some("a\nb".into());
        let expected = "ID  KIND    STATE   TRIES  SIZE  QUEUED                    KEY   REASON\n\
                        7   prompt  queued  0      5     2023-11-14T22:13:20.000Z  a\\nb  -\n";
        assert_eq!(messages(&[message.clone()], Style::default(), NOW), expected);
        message.status.state = MessageState::Dead;
        message.status.attempts = 5;
        message.status.reason = Some("exit 3\x1b[2J".into());
        let expected = "ID  KIND    TRIES  SIZE  DEAD                      KEY   REASON\n\
                        7   prompt  5/5    5     2023-11-14T22:13:20.000Z  a\\nb  exit 3\\x1b[2J\n";
        assert_eq!(dead(&[message], Style::default(), NOW), expected);
    }

    #[test]
    fn a_result_is_shown_as_it_was_written() {
        assert_eq!(result("It is\x1b green.\n"), "result: It is\\x1b green.\n");
        assert_eq!(result("one\n\ttwo"), "result:\n  one\n  \ttwo\n");
    }

    #[test]
    fn an_open_breaker_has_a_reason_and_an_end() {
        let mut state = Breaker {
            failures: 3,
            opened_at: Some(NOW),
            probe_at: Some(Timestamp(NOW.0 + 40_000)),
            reason: Some("exit 1".into()),
        };
        let said = breaker("summarize", &state, NOW);
        assert_eq!(said, "summarize failed 3 times in a row, last: exit 1; next probe in 40s");
        assert!(breaker("x", &state, Timestamp(NOW.0 + 90_000)).ends_with("; next probe now"));
        (state.failures, state.reason, state.probe_at) = (1, None, None);
        assert_eq!(breaker("x", &state, NOW), "x failed once in a row");
    }
}
