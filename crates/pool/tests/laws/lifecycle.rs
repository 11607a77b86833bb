//! The laws of the lifecycle of sessions: under random commands, against a plain reference.

mod command;
mod creators;
mod host;
mod machine;
mod reference;
mod shell;

use proptest::prelude::*;

use command::commands;
use machine::Machine;

/// Few enough for every run; `POOL_CASES` asks for more.
const CASES: u32 = 1000;
const STEPS: usize = 90;

#[expect(clippy::disallowed_methods, reason = "how long a test runs is asked of it from outside")]
fn cases() -> u32 {
    std::env::var("POOL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn law_6_sessions_live_as_the_reference_says(commands in commands(STEPS)) {
        Machine::default().run(&commands);
    }
}
