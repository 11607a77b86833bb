//! Exits of programs: what the pool says of one is what its init has reported, or nothing.

use protocol::{Exit, Tag};

use super::Judge;

impl Judge {
    /// Notes that the init of an incarnation is about to report the exit code or the signal of its program.
    pub(crate) fn exited(&self, tag: Tag, exit: (Option<i32>, Option<i32>)) {
        self.state().exits.insert(tag, exit);
    }

    /// Checks the exit of an incarnation that the pool tells.
    pub(crate) fn check_exit(&self, tag: Tag, told: Exit) {
        self.count("checked:exit");
        let reported = self.state().exits.get(&tag).copied();
        if reported != Some((told.code, told.signal)) {
            self.violated(format!(
                "G-25: {tag} is said to have ended with {told:?}, and reported {reported:?}"
            ));
        }
    }
}
