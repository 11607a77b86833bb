//! Fuzz tests of everything that comes from outside. Each input is parsed without a panic and within a bound
//! of memory. Without settings each target reads its corpus and a fixed number of mutated inputs from a fixed
//! seed. With `POOL_FUZZ_SECONDS` each runs for so long, from a new seed (`POOL_FUZZ_SEED` repeats one), and
//! its time has to grow linearly with the length of the input. `scripts/soak --only fuzz` does that in a
//! build that counts the covered edges, which is what guides the mutations (`coverage`).

#![expect(clippy::unwrap_used, reason = "a panic is the failure of a test")]

mod corpus;
mod coverage;
mod engine;
mod growth;
mod memory;
mod mutate;
mod targets;
