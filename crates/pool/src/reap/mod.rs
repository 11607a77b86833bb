//! Reaping: the processes and panes that should be dead. The core names candidates with evidence; the reaper
//! ends them.
//!
//! - What is over: `candidates` (incarnations that end, panes that ended ones left) and `orphans` with
//!   `orphan_candidates` (processes with the marker of something that is over, clients of a dead daemon,
//!   silent workers), by the volatile facts of `inputs`. `retired_tags` tells when a tag can be forgotten.
//! - What runs: `rules` (each with its threshold and its evidence), `act` (the action on a violation),
//!   `explain` (the verdicts, for people).
//!   `machine` knows what the machine is short of, and `machine_rules` names the idlest session then.
//! - With both halves of the state: `gather` (candidates and inputs), `evaluate` (the rules, and the outcomes
//!   of leases), `grace` (the time that a user asks for). `state` is volatile, with the `leases`.

pub(crate) mod act;
pub(crate) mod candidates;
pub(crate) mod evaluate;
pub(crate) mod explain;
pub(crate) mod gather;
pub(crate) mod grace;
pub(crate) mod inputs;
pub(crate) mod leases;
pub(crate) mod machine;
pub(crate) mod machine_rules;
pub(crate) mod orphan_candidates;
pub(crate) mod orphans;
pub(crate) mod retired_tags;
pub(crate) mod rules;
pub(crate) mod state;

pub use act::{Decision, decide, end_reason, leave_orphans, rule_of};
pub use candidates::{find_candidates, is_to_end};
pub use evaluate::{
    evaluate_rules, force, lease_settled, lease_taken, note_silent_workers, report_findings,
    report_spared_server, would_end,
};
pub use explain::explain;
pub use gather::{all_candidates, candidates, with_inputs, with_rule_inputs};
pub use grace::ask_grace;
pub use inputs::ReapInputs;
pub use machine::{MACHINE_RULES, Machine, MachineUse, Share};
pub use machine_rules::{held_by_shortage, machine_verdict, note_machine, shortages};
pub use orphans::{OrphanClient, OrphanProcess, Orphans, SilentWorker};
pub use rules::{ResourceUse, RuleInputs, RuleVerdict, SESSION_RULES, rule_action, rule_verdict, violations};
pub use state::Reaping;
