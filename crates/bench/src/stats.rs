//! Quantiles of measured times, and the machine's load.

use std::process::Command;
use std::time::Duration;

/// Measured times of one command.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time in microseconds that this share of the measurements (0 to 1) does not exceed: the nearest rank.
    /// 0 where nothing was measured.
    #[must_use]
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank among some thousand measurements"
        )]
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    }
}

/// The load averages over 1, 5 and 15 minutes, as the system writes them.
#[must_use]
pub(crate) fn load() -> String {
    let file = std::fs::read_to_string("/proc/loadavg").ok();
    let from_file = file.map(|text| text.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    let from_sysctl = || {
        let output = Command::new("sysctl").args(["-n", "vm.loadavg"]).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim_matches(['{', '}', ' ', '\n']).to_owned())
    };
    from_file.or_else(from_sysctl).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let mut times = Times::default();
        assert!(times.quantile_us(0.5) < 0.5);
        for us in (1..=100).rev() {
            times.push(Duration::from_micros(us));
        }
        let rounded = |share| times.quantile_us(share).round();
        assert_eq!((rounded(0.0), rounded(0.5), rounded(0.99), rounded(1.0)), (1.0, 50.0, 99.0, 100.0));
    }
}
