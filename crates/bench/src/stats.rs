//! Quantiles of measured times, and the machine's load.

use std::process::Command;
use std::time::Duration;

/// Measured times of one thing.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    /// Adds a time.
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Number of times.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the quantile `share` (0 to 1) in microseconds, by nearest rank; 0 without measurements.
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

/// Figures of one round of a throughput measurement, or their medians over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// Operations per second.
    pub(crate) rate: f64,
    /// Median duration of an operation, in microseconds.
    pub(crate) p50: f64,
    /// 99th percentile, in microseconds.
    pub(crate) p99: f64,
}

impl Figures {
    /// Returns the median of each figure.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self { rate: of(|round| round.rate), p50: of(|round| round.p50), p99: of(|round| round.p99) }
    }
}

/// Returns the median: the lower of the middle two for an even number, NaN for none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the load averages over 1, 5 and 15 minutes, as the system writes them.
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
    fn the_median_is_a_measured_value() {
        assert!(median(std::iter::empty()).is_nan());
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 1.0, 2.0, 3.0].into_iter()) - 2.0).abs() < 1e-9);
    }

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
