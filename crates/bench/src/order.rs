//! Order of measurements within a run.

/// A prime, so that the orders of consecutive runs differ widely.
const STRIDE: usize = 1_000_003;

/// Returns the indices 0 to `len` in the order of this run. All orders take their turn, so that nothing is
/// always measured right after the same other thing.
pub(crate) fn order(run: usize, len: usize) -> Vec<usize> {
    let mut choice = run.wrapping_mul(STRIDE);
    let mut rest: Vec<usize> = (0..len).collect();
    let mut order = Vec::with_capacity(len);
    while !rest.is_empty() {
        let choices = rest.len();
        order.push(rest.remove(choice % choices));
        choice /= choices;
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_orders_take_their_turn() {
        let orders: BTreeSet<_> = (0..24).map(|run| order(run, 4)).collect();
        assert_eq!(orders.len(), 24);
        assert!(orders.iter().all(|order| order.iter().sum::<usize>() == 6));
    }

    #[test]
    fn of_many_things_none_has_its_place() {
        let orders: Vec<_> = (0..30).map(|run| order(run, 10)).collect();
        for place in 0..10 {
            let there: BTreeSet<_> = orders.iter().map(|order| order[place]).collect();
            assert!(there.len() > 5, "place {place}: {there:?}");
        }
    }
}
