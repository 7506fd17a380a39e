//! What many slices say together: the same binary varies by half within minutes, so candidates take turns, the order is
//! reversed each round, every round gives ratios of its own, and the median of these is what counts.

use crate::Outcome;

/// What one slice did, and what it cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slice {
    pub(crate) done: f64,
    /// Seconds of a CPU.
    pub(crate) cpu: f64,
}

impl Slice {
    /// Per CPU-second.
    pub(crate) fn rate(self) -> f64 {
        self.done / self.cpu.max(1e-9)
    }
}

/// Candidates in turn; the slices by round, then by candidate.
pub(crate) fn run(rounds: u32, candidates: usize, mut slice: impl FnMut(usize) -> Outcome<Slice>) -> Outcome<Vec<Vec<Slice>>> {
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut slices = vec![Slice::default(); candidates];
        for n in order(round, candidates) {
            slices[n] = slice(n)?;
        }
        all.push(slices);
    }
    Ok(all)
}

/// Forwards, then backwards.
pub(crate) fn order(round: u32, candidates: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..candidates).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// The median and the quartiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * values.len().saturating_sub(1) as f64;
            let (below, above) = (values.get(place.floor() as usize), values.get(place.ceil() as usize));
            let (Some(below), Some(above)) = (below, above) else { return f64::NAN };
            below + (above - below) * place.fract()
        };
        Self { median: at(0.5), low: at(0.25), high: at(0.75) }
    }

    /// `0.84 [0.80, 0.88]`
    pub(crate) fn ratio(self) -> String {
        format!("{:.2} [{:.2}, {:.2}]", self.median, self.low, self.high)
    }
}

/// How a candidate's rate compares with another's, round by round.
pub(crate) fn ratio(rounds: &[Vec<Slice>], candidate: usize, reference: usize) -> Spread {
    Spread::of(rounds.iter().map(|slices| slices[candidate].rate() / slices[reference].rate()))
}

/// A candidate's rate.
pub(crate) fn rate(rounds: &[Vec<Slice>], candidate: usize) -> Spread {
    Spread::of(rounds.iter().map(|slices| slices[candidate].rate()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_quartiles_are_those_of_the_rounds() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0, 5.0]), Spread { median: 3.0, low: 2.0, high: 4.0 });
        assert_eq!(Spread::of([1.0, 2.0]).median, 1.5);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn candidates_take_turns_and_each_round_has_its_own_ratio() {
        let mut order = Vec::new();
        let mut cost = 1.0;
        let rounds = run(2, 2, |n| {
            order.push(n);
            // The machine gets slower by ten between the rounds: ratios do not see it.
            if order.len() == 3 {
                cost = 10.0;
            }
            Ok(Slice { done: if n == 0 { 50.0 } else { 100.0 }, cpu: cost })
        })
        .unwrap();
        assert_eq!(order, [0, 1, 1, 0]);
        assert_eq!(ratio(&rounds, 0, 1), Spread { median: 0.5, low: 0.5, high: 0.5 });
    }
}
