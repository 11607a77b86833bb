//! The flags of `new` and `run` about a session's life: what bounds it, and what becomes of it, which `update`
//! changes.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::life::{Limits, RestartPolicy};
use protocol::reap::{Action, Rule};
use protocol::request::New;

use crate::cli::pair;
use crate::show::time;

/// Never, where a time is asked for.
const NEVER: u64 = u64::MAX;

/// See the module.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Life {
    /// What bounds it: mem=2G cpu=150% tasks=200 disk=10G nofile=4096 core=0 fsize=1G nice=10 cpus=0-3
    #[arg(long, value_name = "K=V,…")]
    pub limit: Vec<Limits>,
    /// Start it even where some of its limits cannot be held; `show` names them
    #[arg(long, value_name = "HOW", value_parser = ["best-effort"])]
    pub limits: Option<String>,
    #[command(flatten)]
    pub fate: Fate,
    /// What becomes of it where a rule applies: hung=restart, idle_session=park, … [default: its agent's]
    #[arg(long, value_name = "RULE=ACTION", value_parser = reaped)]
    pub reap: Vec<(Rule, Action)>,
    /// Remove it as soon as it is over
    #[arg(long, conflicts_with_all = ["restart", "ttl"])]
    pub ephemeral: bool,
    /// Never park it by itself
    #[arg(long)]
    pub pin: bool,
    /// How long to wait for a slot; 0: not at all [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub wait_slot: Option<Duration>,
}

/// What becomes of a session, as it is said when it is created and changed later.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[group(skip)]
pub(crate) struct Fate {
    /// End it after running for so long, or never
    #[arg(long, value_name = "DUR", value_parser = positive)]
    pub max_runtime: Option<u64>,
    /// Start it again when it ends by itself [default: the configuration's]
    #[arg(long, value_name = "WHEN", value_parser = policy())]
    pub restart: Option<RestartPolicy>,
    /// Starts by itself before it stays as it is [default: the configuration's]
    #[arg(long, value_name = "N")]
    pub max_restarts: Option<u32>,
    /// Park it after being idle for so long, or never [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = positive)]
    pub idle_timeout: Option<u64>,
    /// Remove it so long after its end, or never [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = or_never)]
    pub ttl: Option<u64>,
}

impl Life {
    /// The request with these.
    #[must_use]
    pub(crate) fn applied(self, new: New) -> New {
        New {
            limits: self.bounds(),
            restart: self.fate.restart,
            max_restarts: self.fate.max_restarts,
            idle_timeout_ms: self.fate.idle_timeout,
            ttl_ms: self.fate.ttl,
            max_runtime_ms: self.fate.max_runtime,
            reap: self.reap.into_iter().collect(),
            ephemeral: self.ephemeral,
            pinned: self.pin,
            wait_slot_ms: self.wait_slot.map(time::millis),
            ..new
        }
    }

    /// All limits; of two for the same the later one.
    fn bounds(&self) -> Limits {
        let said = self.limit.iter().fold(Limits::default(), |earlier, later| later.clone().or(&earlier));
        Limits { best_effort: self.limits.is_some(), ..said }
    }
}

fn policy() -> impl TypedValueParser<Value = RestartPolicy> {
    PossibleValuesParser::new(["no", "on-failure", "always"]).try_map(|word| word.parse())
}

/// `RULE=ACTION`.
fn reaped(text: &str) -> Result<(Rule, Action), String> {
    let (rule, action) = pair(text)?;
    let (rule, action): (Rule, Action) = (rule.parse()?, action.parse()?);
    if !rule.allows(action) {
        return Err(format!(
            "what {} finds cannot be {}: see `poolctl reap --explain`",
            rule.word(),
            action.word()
        ));
    }
    Ok((rule, action))
}

/// The same, or `RULE=default`, which is none.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn reaped_or_default(text: &str) -> Result<(Rule, Option<Action>), String> {
    match text.split_once('=') {
        Some((rule, "default")) => Ok((rule.parse()?, None)),
        _ => reaped(text).map(|(rule, action)| (rule, Some(action))),
    }
}

/// A time in milliseconds.
fn or_never(text: &str) -> Result<u64, String> {
    if text == "never" { Ok(NEVER) } else { time::parse(text).map(time::millis) }
}

fn positive(text: &str) -> Result<u64, String> {
    or_never(text).and_then(|ms| if ms == 0 { Err("longer than 0, or never".into()) } else { Ok(ms) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_limits_wins() {
        let limit = ["mem=1G,cpu=50%", "mem=2G", "cpus=0-1,4"].map(|text| text.parse().unwrap()).to_vec();
        let life = Life { limit, ..Life::default() };
        assert_eq!(life.bounds().to_string(), "mem=2G,cpu=50%,cpus=0-1,4");
        assert!(!life.bounds().best_effort);
        assert!(Life { limits: Some("best-effort".into()), ..life }.bounds().best_effort);
    }

    #[test]
    fn never_is_a_time_and_zero_is_not_always_one() {
        assert_eq!((or_never("never"), or_never("0"), or_never("1m")), (Ok(NEVER), Ok(0), Ok(60_000)));
        assert_eq!((positive("never"), positive("2s")), (Ok(NEVER), Ok(2000)));
        assert!(positive("0").is_err());
    }

    #[test]
    fn a_rule_has_an_action_that_it_allows() {
        assert_eq!(reaped("hung=restart"), Ok((Rule::Hung, Action::Restart)));
        assert_eq!(reaped("stale-worker=report"), Ok((Rule::StaleWorker, Action::Report)));
        for bad in
            ["zombie_pane=report", "hung", "=kill", "hang=kill", "hung=end", "hung=default", "orphans=park"]
        {
            assert!(reaped(bad).is_err(), "{bad}");
        }
        assert_eq!(reaped_or_default("hung=default"), Ok((Rule::Hung, None)));
        assert_eq!(reaped_or_default("hung=park"), Ok((Rule::Hung, Some(Action::Park))));
        assert!(reaped_or_default("hang=default").is_err() && reaped_or_default("orphans=park").is_err());
    }
}
