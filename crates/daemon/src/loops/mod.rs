//! Activities of the daemon without a request, one loop each; they run until the daemon ends.

pub(crate) mod activity;
pub(crate) mod adopt;
pub(crate) mod deliver;
pub(crate) mod lease_deadlines;
pub(crate) mod limits;
pub(crate) mod orphans;
pub(crate) mod queue_health;
pub(crate) mod reap;
pub(crate) mod recover;
pub(crate) mod retain;
pub(crate) mod schedule;
pub(crate) mod unattended_size;
pub(crate) mod workers;
