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

use crate::world::cases;

const STEPS: usize = 90;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn law_6_sessions_live_as_the_reference_says(commands in commands(STEPS)) {
        Machine::default().run(&commands);
    }
}
