//! Queues under random commands, against the reference.

use proptest::prelude::*;

use super::command::commands;
use super::machine::{Machine, tight};

/// Few enough for every run; `POOL_CASES` asks for more.
const CASES: u32 = 2000;
const STEPS: usize = 60;

#[expect(clippy::disallowed_methods, reason = "how long a test runs is asked of it from outside")]
fn cases() -> u32 {
    std::env::var("POOL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn q01_to_q08_queues_are_what_the_reference_says(commands in commands(STEPS)) {
        Machine::new(tight()).run(&commands);
    }
}
