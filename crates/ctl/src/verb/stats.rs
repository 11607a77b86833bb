//! `stats`: the resource usage of running sessions, and their messages that stand still.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use protocol::reply::UsageView;
use protocol::request::List;
use protocol::{ErrorCode, Limits, Request, SessionId, SessionRef, SessionView, StuckLane, Usage};
use serde::Serialize;

use crate::calls::{self, expected};
use crate::show::json::Json;
use crate::show::table::Table;
use crate::show::{out, resources, size};
use crate::targets::{first_error, for_each};
use crate::{Client, Context, Error};

/// Time between the two samples from which the share of a processor is computed.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// Show the resource usage of running sessions, and which of their messages stand still
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions [default: all that run]
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
}

/// The usage of a session, as JSON.
#[derive(Debug, Serialize)]
struct Document<'a> {
    id: SessionId,
    name: &'a str,
    #[serde(flatten)]
    usage: Json<&'a Usage>,
    limits: Option<Json<&'a Limits>>,
    unenforced: &'a [String],
    stuck: Vec<Json<&'a StuckLane>>,
}

/// Samples twice, and prints the second sample.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut client = context.client();
    let sessions = args.sessions.iter().map(|session| context.session(session).map(Some));
    let mut sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    if sessions.is_empty() {
        sessions.push(None);
    }
    let mut before = BTreeMap::new();
    for session in &sessions {
        match usage(&mut client, session.clone()) {
            Ok(views) => before
                .extend(views.into_iter().map(|view| (view.session, (Instant::now(), view.usage.cpu_us)))),
            Err(error) if concerns_pool(&error) => return Err(error),
            // The failure of one session is reported by the second sample.
            Err(_) => {}
        }
    }
    thread::sleep(SAMPLE_INTERVAL);
    let mut found = Vec::new();
    let sampled = for_each(context, &sessions, |session| {
        let views = usage(&mut client, session.clone())?;
        found.extend(views.into_iter().map(|view| with_share(view, &before)));
        Ok(())
    });
    first_error(context, sampled, show(context, &mut client, &found))
}

fn show(context: &Context, client: &mut Client, found: &[UsageView]) -> Result<(), Error> {
    let limits = limits(client)?;
    if context.style.json {
        found.iter().try_for_each(|view| out::json(&document(view, &limits)))
    } else {
        out::text(&table(found, &limits, context.style.quiet))
    }
}

fn usage(client: &mut Client, session: Option<SessionRef>) -> Result<Vec<UsageView>, Error> {
    expected!(client.ask(Request::Usage(session))?, Usage)
}

/// True if the failure would be the same for every session.
fn concerns_pool(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::Unavailable | ErrorCode::Timeout | ErrorCode::Protocol)
}

/// The time of each session's first sample, and its CPU time in microseconds then.
type Before = BTreeMap<SessionId, (Instant, u64)>;

/// Fills in the share of a processor since the first sample.
fn with_share(mut view: UsageView, before: &Before) -> UsageView {
    let before = before.get(&view.session);
    view.usage.cpu_percent = before.and_then(|(at, cpu_us)| share(*cpu_us, view.usage.cpu_us, at.elapsed()));
    view
}

/// The share of one processor, in percent; `None` if the CPU time decreased, as after a restart.
fn share(before_us: u64, now_us: u64, between: Duration) -> Option<u32> {
    let used = u128::from(now_us.checked_sub(before_us)?) * 100;
    u32::try_from(used.checked_div(between.as_micros())?).ok()
}

/// The limits of a session, and those that are not enforced, each a sentence.
type Bounds = (Limits, Vec<String>);

/// The limits of each session.
fn limits(client: &mut Client) -> Result<BTreeMap<SessionId, Bounds>, Error> {
    let views = calls::sessions(client, List { all: true, ..List::default() })?;
    let bounds = views.into_iter().map(|SessionView { session, .. }| {
        let unenforced = session.incarnation.map(|run| run.unenforced).unwrap_or_default();
        (session.id, (session.spec.limits, unenforced))
    });
    Ok(bounds.collect())
}

fn document<'a>(view: &'a UsageView, limits: &'a BTreeMap<SessionId, Bounds>) -> Document<'a> {
    let bounds = limits.get(&view.session);
    Document {
        id: view.session,
        name: view.name.as_str(),
        usage: Json(&view.usage),
        limits: bounds.map(|(limits, _)| Json(limits)),
        unenforced: bounds.map(|(_, unenforced)| unenforced.as_slice()).unwrap_or_default(),
        stuck: view.stuck.iter().map(Json).collect(),
    }
}

fn table(views: &[UsageView], limits: &BTreeMap<SessionId, Bounds>, quiet: bool) -> String {
    let header: &[&str] =
        if quiet { &[] } else { &["NAME", "CPU%", "MEM", "PROCS", "DISK", "LOG", "LIMITS", "STUCK"] };
    let mut table = Table::new(header);
    for UsageView { session, name, usage, stuck } in views {
        let size = |bytes: Option<u64>| bytes.map(size::short).unwrap_or_default();
        table.row([
            name.for_people().into_owned(),
            usage.cpu_percent.map(|percent| format!("{percent}%")).unwrap_or_default(),
            size::short(usage.memory),
            usage.processes.to_string(),
            size(usage.disk),
            size(usage.log),
            limits
                .get(session)
                .map(|(limits, lacking)| resources::marked_limits(limits, lacking))
                .unwrap_or_default(),
            stuck.iter().map(|lane| lane.kind.as_str()).collect::<Vec<_>>().join(","),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use protocol::{Standstill, StuckReason, Timestamp};

    use super::*;
    use crate::manual::contract_tests;

    #[test]
    fn a_line_has_every_key_of_the_contract() {
        let name: protocol::Name = "web".parse().unwrap();
        let usage = Usage { processes: 2, cpu_us: 9, ..Usage::default() };
        let standstill = Standstill { since: Timestamp(0), waiting: 3, reason: StuckReason::NoWorker };
        let lane = StuckLane { session: SessionId(1), name: name.clone(), kind: "build".into(), standstill };
        let view = UsageView { session: SessionId(1), name, usage, stuck: vec![lane] };
        let limits = BTreeMap::from([(SessionId(1), (Limits::default(), vec!["cpu: why".to_owned()]))]);
        for limits in [limits, BTreeMap::new()] {
            let value = serde_json::to_value(document(&view, &limits)).unwrap();
            contract_tests::check(&value, "JSON of the usage of a session");
            assert_eq!((&value["id"], &value["processes"]), (&"sess_1".into(), &2.into()));
            assert_eq!(value["limits"].is_null(), limits.is_empty());
        }
    }

    #[test]
    fn a_share_is_of_the_time_between() {
        let between = Duration::from_millis(500);
        assert_eq!([share(7, 7, between), share(1000, 751_000, between)], [Some(0), Some(150)]);
        assert_eq!([share(8, 7, between), share(0, 7, Duration::ZERO)], [None, None]);
    }

    #[test]
    fn what_was_not_seen_before_has_no_share() {
        let usage = Usage { cpu_us: 9, cpu_percent: Some(5), ..Default::default() };
        let view =
            UsageView { session: SessionId(1), name: "web".parse().unwrap(), usage, stuck: Vec::new() };
        let now = Instant::now();
        assert_eq!(with_share(view.clone(), &Before::new()).usage.cpu_percent, None);
        assert_eq!(
            with_share(view.clone(), &Before::from([(SessionId(2), (now, 0))])).usage.cpu_percent,
            None
        );
        assert_eq!(with_share(view, &Before::from([(SessionId(1), (now, 10))])).usage.cpu_percent, None);
    }
}
