//! The last sample of the machine, and what it is short of: memory or disk space.

use std::collections::BTreeSet;

use protocol::Timestamp;
use protocol::reap::Rule;

use crate::settings::ReapRules;

/// The rules about the machine. Memory is more pressing than disk space: without it the kernel kills programs of its
/// own choice.
pub const MACHINE_RULES: [Rule; 2] = [Rule::HostMemory, Rule::HostDisk];

/// Share, in hundredths of a percent, by which a shortage has to fall below its limit to be over.
const MARGIN: u32 = 200;

/// A part in use, and the whole, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The part in use.
    pub used: u64,
    /// The whole.
    pub total: u64,
}

/// Use of the machine; what the system does not tell is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineUse {
    /// Memory that is not available to programs.
    pub memory: Option<Share>,
    /// Share of the last 10 s in which some program waited for memory, in hundredths of a percent.
    pub memory_pressure: Option<u32>,
    /// Space on the file system of the state directory.
    pub disk: Option<Share>,
}

/// The last sample of the machine, and what it is short of.
#[derive(Debug, Default)]
pub struct Machine {
    sampled: Option<(MachineUse, Timestamp)>,
    short_of: BTreeSet<Rule>,
}

impl Machine {
    /// Stores a sample. Returns true if the machine is short of other things than before.
    pub fn note(&mut self, rules: &ReapRules, sample: MachineUse, at: Timestamp) -> bool {
        let before = std::mem::take(&mut self.short_of);
        let is_short = |rule: &Rule| {
            let margin = if before.contains(rule) { MARGIN } else { 0 };
            measures(rules, &sample, *rule).iter().any(|measure| measure.share + margin >= measure.limit)
        };
        self.short_of = MACHINE_RULES.into_iter().filter(is_short).collect();
        self.sampled = Some((sample, at));
        self.short_of != before
    }

    /// Time of the last sample.
    pub(crate) fn sampled_at(&self) -> Option<Timestamp> {
        self.sampled.map(|(_, at)| at)
    }

    /// The figures of a shortage.
    ///
    /// # Errors
    /// The figures, or the reason why there are none, if the machine has enough.
    pub fn shortage(&self, rules: &ReapRules, rule: Rule) -> Result<String, String> {
        let Some((sample, _)) = &self.sampled else {
            return Err("the machine is not sampled yet".to_owned());
        };
        let mut measures = measures(rules, sample, rule);
        // The measure that is furthest over its limit, or nearest to it, comes first.
        measures.sort_by_key(|measure| i64::from(measure.limit) - i64::from(measure.share));
        match measures.into_iter().next() {
            None if is_off(rules, rule) => Err(format!("no limit is set ([reaper] {})", rule.as_str())),
            None => Err("the system does not tell its use".to_owned()),
            Some(measure) if self.short_of.contains(&rule) => Ok(measure.what),
            Some(measure) => Err(measure.what),
        }
    }
}

/// A measured share and its limit, both in hundredths of a percent.
struct Measure {
    share: u32,
    limit: u32,
    what: String,
}

/// The measures of a rule, with its figures for people.
fn measures(rules: &ReapRules, sample: &MachineUse, rule: Rule) -> Vec<Measure> {
    let of_bytes = |share: Option<Share>, limit: Option<u32>, what: &str| {
        let (Share { used, total }, limit) = (share.filter(|share| share.total > 0)?, limit?);
        let share = u32::try_from(u128::from(used) * 10_000 / u128::from(total)).unwrap_or(u32::MAX / 2);
        let (used, total) = (used >> 20, total >> 20);
        let what =
            format!("{used} of {total} MiB of {what} in use ({}, limit {})", percent(share), percent(limit));
        Some(Measure { share, limit, what })
    };
    let pressure = || {
        let (share, limit) = (sample.memory_pressure?, rules.host_memory_pressure?);
        let what = format!(
            "programs waited for memory during {} of the last 10 s (limit {})",
            percent(share),
            percent(limit)
        );
        Some(Measure { share, limit, what })
    };
    match rule {
        Rule::HostMemory => {
            let memory = of_bytes(sample.memory, rules.host_memory, "the machine's memory are");
            memory.into_iter().chain(pressure()).collect()
        }
        Rule::HostDisk => {
            of_bytes(sample.disk, rules.host_disk, "the state directory's disk are").into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn is_off(rules: &ReapRules, rule: Rule) -> bool {
    match rule {
        Rule::HostMemory => rules.host_memory.is_none() && rules.host_memory_pressure.is_none(),
        _ => rules.host_disk.is_none(),
    }
}

/// Formats hundredths of a percent: `95%`, `12.5%`.
fn percent(share: u32) -> String {
    format!("{}%", f64::from(share) / 100.0)
}
