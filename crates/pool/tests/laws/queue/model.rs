//! Queues under random commands, against the reference.

use proptest::prelude::*;

use super::command::commands;
use super::machine::{Machine, tight};
use crate::world::cases;

const STEPS: usize = 60;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn q01_to_q08_queues_are_what_the_reference_says(commands in commands(STEPS)) {
        Machine::new(tight()).run(&commands);
    }
}
