//! The flags about limits and policies: both for `new` and `run`, and the policies for `update`.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::Limits;
use protocol::policy::RestartPolicy;
use protocol::reap::{Action, Rule};
use protocol::request::New;

use crate::args::pair;
use crate::show::time;

/// The value of `never` for a time in milliseconds.
const NEVER: u64 = u64::MAX;

/// The flags of `new` and `run`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct LifecycleArgs {
    /// Resource limits: mem=2G cpu=150% tasks=200 disk=10G nofile=4096 core=0 fsize=1G nice=10 cpus=0-3
    #[arg(long, value_name = "K=V,…")]
    pub limit: Vec<Limits>,
    /// Start it even if some of its limits cannot be enforced; `show` names them
    #[arg(long, value_name = "HOW", value_parser = ["best-effort"])]
    pub limits: Option<String>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Action of the reaper when a rule applies: hung=restart, idle_session=park, … [default: its agent's]
    #[arg(long, value_name = "RULE=ACTION", value_parser = rule_action)]
    pub reap: Vec<(Rule, Action)>,
    /// Remove it a few seconds after its end; one that is lost stays
    #[arg(long, conflicts_with_all = ["restart", "ttl"])]
    pub ephemeral: bool,
    /// Never park it automatically
    #[arg(long)]
    pub pin: bool,
    /// Time to wait for a slot; 0: not at all [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    pub wait_slot: Option<Duration>,
}

/// The policies that are set when a session is created, and changed by `update`.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[group(skip)]
pub(crate) struct PolicyArgs {
    /// End it after running for this long, or never
    #[arg(long, value_name = "DUR", value_parser = positive)]
    pub max_runtime: Option<u64>,
    /// Start it again when it ends by itself [default: from the configuration]
    #[arg(long, value_name = "WHEN", value_parser = policy())]
    pub restart: Option<RestartPolicy>,
    /// Number of automatic restarts before it stays ended, 1 to 128 [default: from the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub max_restarts: Option<u32>,
    /// Park it after being idle for this long, or never [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = positive)]
    pub idle_timeout: Option<u64>,
    /// Remove it this long after its end, or never [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = or_never)]
    pub ttl: Option<u64>,
}

impl LifecycleArgs {
    /// The request with these flags applied.
    pub(crate) fn applied(self, new: New) -> New {
        New {
            limits: self.limits(),
            restart: self.policy.restart,
            max_restarts: self.policy.max_restarts,
            idle_timeout_ms: self.policy.idle_timeout,
            ttl_ms: self.policy.ttl,
            max_runtime_ms: self.policy.max_runtime,
            reap: self.reap.into_iter().collect(),
            ephemeral: self.ephemeral,
            pinned: self.pin,
            wait_slot_ms: self.wait_slot.map(time::millis),
            ..new
        }
    }

    /// All limits; of two for the same resource the later one.
    fn limits(&self) -> Limits {
        let given = self.limit.iter().fold(Limits::default(), |earlier, later| later.clone().or(&earlier));
        Limits { best_effort: self.limits.is_some(), ..given }
    }
}

fn policy() -> impl TypedValueParser<Value = RestartPolicy> {
    PossibleValuesParser::new(["no", "on-failure", "always"]).try_map(|word| word.parse())
}

/// Parses `RULE=ACTION`.
fn rule_action(text: &str) -> Result<(Rule, Action), String> {
    let (rule, action) = pair(text)?;
    let (rule, action): (Rule, Action) = (rule.parse()?, action.parse()?);
    if !rule.allows(action) {
        return Err(format!(
            "the rule {} does not allow the action {}: see `poolctl reap --explain`",
            rule.as_str(),
            action.as_str()
        ));
    }
    Ok((rule, action))
}

/// Parses `RULE=ACTION`, or `RULE=default`, which has no action.
pub(crate) fn rule_action_or_default(text: &str) -> Result<(Rule, Option<Action>), String> {
    match text.split_once('=') {
        Some((rule, "default")) => Ok((rule.parse()?, None)),
        _ => rule_action(text).map(|(rule, action)| (rule, Some(action))),
    }
}

/// Parses a time in milliseconds, or `never`.
fn or_never(text: &str) -> Result<u64, String> {
    if text == "never" { Ok(NEVER) } else { time::parse_duration(text).map(time::millis) }
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
        let args = LifecycleArgs { limit, ..LifecycleArgs::default() };
        assert_eq!(args.limits().to_string(), "mem=2G,cpu=50%,cpus=0-1,4");
        assert!(!args.limits().best_effort);
        assert!(LifecycleArgs { limits: Some("best-effort".into()), ..args }.limits().best_effort);
    }

    #[test]
    fn never_is_a_time_and_zero_is_not_always_one() {
        assert_eq!((or_never("never"), or_never("0"), or_never("1m")), (Ok(NEVER), Ok(0), Ok(60_000)));
        assert_eq!((positive("never"), positive("2s")), (Ok(NEVER), Ok(2000)));
        assert!(positive("0").is_err());
    }

    #[test]
    fn a_rule_has_an_action_that_it_allows() {
        assert_eq!(rule_action("hung=restart"), Ok((Rule::Hung, Action::Restart)));
        assert_eq!(rule_action("stale-worker=report"), Ok((Rule::StaleWorker, Action::Report)));
        for bad in
            ["zombie_pane=report", "hung", "=kill", "hang=kill", "hung=end", "hung=default", "orphans=park"]
        {
            assert!(rule_action(bad).is_err(), "{bad}");
        }
        assert_eq!(rule_action_or_default("hung=default"), Ok((Rule::Hung, None)));
        assert_eq!(rule_action_or_default("hung=park"), Ok((Rule::Hung, Some(Action::Park))));
        assert!(
            rule_action_or_default("hang=default").is_err()
                && rule_action_or_default("orphans=park").is_err()
        );
    }
}
