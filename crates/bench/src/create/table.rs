//! Tables of the results beside the floor, with the goals met or missed.

use super::makers::Maker;
use super::{AT_A_TIME, Load, ONE_BY_ONE, Row, TOGETHER};
use crate::stats::{self, median};

/// Maximum ratio to the bare command one by one, and the stretch goal.
const AT_MOST: f64 = 2.0;
const AT_MOST_BEYOND: f64 = 1.5;
/// Minimum ratio to its rate with concurrency, and the stretch goal.
const AT_LEAST: f64 = 1.0;
const AT_LEAST_BEYOND: f64 = 2.0;

/// Formats the tables.
pub(super) fn text(rows: &[Row], existing: usize, runs: usize) -> String {
    let mut text = format!(
        "creating sessions beside {existing} others, {runs} rounds of {ONE_BY_ONE} one by one and {TOGETHER} together, \
         in turn; load {}\n",
        stats::load()
    );
    for (load, title) in
        [(Load::One, "one by one".to_owned()), (Load::Many, format!("{AT_A_TIME} at a time"))]
    {
        text.push_str(&format!(
            "\n{title:<20}{:>10}{:>10}{:>10}{:>19}{:>8}{:>8}\n",
            "p50 ms", "p90 ms", "a second", "min..max", "x p50", "x rate"
        ));
        let of_load = rows.iter().filter(|row| row.load == load);
        of_load.for_each(|row| text.push_str(&line(rows, row)));
    }
    text + "\n" + &aims(rows)
}

fn line(rows: &[Row], row: &Row) -> String {
    let [p50, p90] = [0.5, 0.9].map(|share| row.times.quantile_us(share) / 1e3);
    let (least, most) = row
        .rates
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), &rate| (least.min(rate), most.max(rate)));
    format!(
        "{:<20}{p50:>10.2}{p90:>10.2}{:>10.0}{:>19}{:>8.2}{:>8.2}\n",
        row.maker.name(),
        rate(row),
        format!("{least:.0}..{most:.0}"),
        p50 / (bare(rows, row.load).map_or(f64::NAN, |bare| bare.times.quantile_us(0.5)) / 1e3),
        rate(row) / bare(rows, row.load).map_or(f64::NAN, rate),
    )
}

fn bare(rows: &[Row], load: Load) -> Option<&Row> {
    of(rows, Maker::Bare, load)
}

fn of(rows: &[Row], maker: Maker, load: Load) -> Option<&Row> {
    rows.iter().find(|row| row.maker == maker && row.load == load)
}

fn rate(row: &Row) -> f64 {
    median(row.rates.iter().copied())
}

fn aims(rows: &[Row]) -> String {
    let p50 = |maker| of(rows, maker, Load::One).map_or(f64::NAN, |row| row.times.quantile_us(0.5));
    let many = |maker| of(rows, maker, Load::Many).map_or(f64::NAN, rate);
    let (slower, faster) = (p50(Maker::Pool) / p50(Maker::Bare), many(Maker::Pool) / many(Maker::Bare));
    let one = verdict(slower <= AT_MOST, slower <= AT_MOST_BEYOND);
    let all = verdict(faster >= AT_LEAST, faster >= AT_LEAST_BEYOND);
    format!(
        "{one}: one by one at most {AT_MOST} x the bare command (beyond: {AT_MOST_BEYOND}): {slower:.2}\n\
         {all}: {AT_A_TIME} at a time at least {AT_LEAST} x its rate (beyond: {AT_LEAST_BEYOND}): {faster:.2}\n"
    )
}

fn verdict(met: bool, beyond: bool) -> &'static str {
    match (met, beyond) {
        (_, true) => "beyond",
        (true, false) => "met",
        (false, false) => "missed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stats::Times;

    fn row(maker: Maker, load: Load, ms: u64, rate: f64) -> Row {
        let mut times = Times::default();
        times.push(Duration::from_millis(ms));
        Row { maker, load, times, rates: vec![rate] }
    }

    #[test]
    fn the_pool_is_compared_with_the_bare_command() {
        let rows = [
            row(Maker::Bare, Load::One, 5, 200.0),
            row(Maker::Pool, Load::One, 9, 110.0),
            row(Maker::Bare, Load::Many, 40, 200.0),
            row(Maker::Pool, Load::Many, 60, 150.0),
        ];
        let text = text(&rows, 7, 1);
        assert!(text.contains("met: one by one at most 2 x the bare command (beyond: 1.5): 1.80"), "{text}");
        assert!(text.contains("missed: 8 at a time at least 1 x its rate (beyond: 2): 0.75"), "{text}");
    }
}
