//! Adaptive batch sizes and timeouts: the automatic mode of batching.
//!
//! The latency of a batch of n rows is modelled as `fixed + n * each` seconds. Both are fitted by
//! least squares to the batches that ran, with exponentially decaying weights, and the arrival rate
//! of rows is averaged. They determine the largest batch that meets the latency goal, and whether
//! to wait for more rows: only while rows arrive faster than batches of the waiting rows could be
//! processed.

use std::time::Duration;

/// The factor by which the weight of earlier batches decays with each batch.
const DECAY: f64 = 0.95;
/// The utilization above which batches are made larger.
const UTILIZATION_MAX: f64 = 0.7;
/// The time constant of the average arrival rate in seconds.
const RATE_SECONDS: f64 = 0.5;

/// Models of the load and of the model's speed.
#[derive(Clone, Debug)]
pub(crate) struct Learner {
    goal: f64,
    /// Decaying sums over batches: weight, rows, rows squared, seconds, rows times seconds.
    sums: [f64; 5],
    /// The arrival rate in rows per second, and when it was updated.
    rate: f64,
    rate_at: Option<f64>,
}

impl Learner {
    /// A model with this latency goal.
    pub(crate) fn new(goal: Duration) -> Self {
        Learner { goal: goal.as_secs_f64(), sums: [0.0; 5], rate: 0.0, rate_at: None }
    }

    /// Records the arrival of rows.
    pub(crate) fn arrived(&mut self, rows: usize, now: Duration) {
        let now = now.as_secs_f64();
        let elapsed = self.rate_at.map_or(RATE_SECONDS, |at| (now - at).max(0.0));
        self.rate = self.rate * (-elapsed / RATE_SECONDS).exp() + rows as f64 / RATE_SECONDS;
        self.rate_at = Some(now);
    }

    /// Records the duration of a batch.
    pub(crate) fn ran(&mut self, rows: usize, duration: Duration) {
        let (n, seconds) = (rows as f64, duration.as_secs_f64());
        for (sum, new) in self.sums.iter_mut().zip([1.0, n, n * n, seconds, n * seconds]) {
            *sum = *sum * DECAY + new;
        }
    }

    /// The fitted cost: seconds per batch and seconds per row.
    fn cost(&self) -> (f64, f64) {
        let [weight, n, nn, t, nt] = self.sums;
        if weight == 0.0 {
            return (0.0, 0.0);
        }
        let spread = weight * nn - n * n;
        if spread <= 1e-9 * nn * weight {
            // All batches had one size: count half of the time to each part.
            return (0.5 * t / weight, 0.5 * t / n.max(1.0));
        }
        let each = ((weight * nt - n * t) / spread).max(0.0);
        let fixed = ((t - each * n) / weight).max(0.0);
        (fixed, each)
    }

    /// The maximum rows of a batch: a request may wait for one batch and then needs its own.
    pub(crate) fn batch_rows(&self, rows_max: usize) -> usize {
        let (fixed, each) = self.cost();
        if each <= 0.0 {
            return rows_max;
        }
        let rows = (0.5 * self.goal - fixed) / each;
        (rows.max(1.0).min(rows_max as f64) as usize).max(1)
    }

    /// The number of rows with which a batch starts at once, and how long the oldest request may
    /// wait for them.
    pub(crate) fn wait(&self, rows_max: usize, lanes: usize) -> (usize, Duration) {
        let (fixed, each) = self.cost();
        let rows_max = self.batch_rows(rows_max);
        // Batches of n rows keep up while rate * (fixed / n + each) is below their share of the lanes.
        let spare = UTILIZATION_MAX * lanes as f64 - self.rate * each;
        let needed = self.rate * fixed;
        if needed <= spare || self.rate <= 0.0 {
            return (1, Duration::ZERO);
        }
        let rows = if spare > 0.0 {
            (needed / spare).ceil().min(rows_max as f64)
        } else {
            rows_max as f64
        };
        let until = 0.5 * self.goal - fixed - each * rows;
        (rows as usize, Duration::from_secs_f64(until.clamp(0.0, rows / self.rate * 2.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    /// A learner that saw rows at `rate` and batches of 1 ms and 0.1 ms a row.
    fn trained(rate: f64) -> Learner {
        let mut learner = Learner::new(seconds(0.020));
        for i in 0..20_000 {
            learner.arrived(1, seconds(f64::from(i) / rate));
            let rows = 1 + i as usize % 7;
            learner.ran(rows, seconds(0.001 + 0.0001 * rows as f64));
        }
        learner
    }

    #[test]
    fn the_cost_of_batches_is_fitted() {
        let (fixed, each) = trained(100.0).cost();
        assert!((fixed - 0.001).abs() < 1e-6 && (each - 0.0001).abs() < 1e-7, "{fixed} {each}");
    }

    #[test]
    fn the_goal_limits_the_batch() {
        // 10 ms are left for a batch: 1 ms and 90 rows.
        assert_eq!(trained(100.0).batch_rows(1000), 90);
        assert_eq!(trained(100.0).batch_rows(32), 32);
        assert_eq!(Learner::new(seconds(0.02)).batch_rows(64), 64);
    }

    #[test]
    fn no_request_waits_at_low_load() {
        assert_eq!(trained(100.0).wait(64, 1), (1, Duration::ZERO));
        assert_eq!(Learner::new(seconds(0.02)).wait(64, 1), (1, Duration::ZERO));
    }

    #[test]
    fn high_load_makes_batches_wait_for_enough_rows() {
        // 3000 rows/s: 0.3 s of each second for the rows, 3 s / n for the batches, 0.7 s allowed.
        let (rows, wait) = trained(3000.0).wait(64, 1);
        assert!((7..=9).contains(&rows), "{rows}");
        assert!(wait > Duration::ZERO && wait < seconds(0.010), "{wait:?}");
        // Two lanes need no waiting for that many.
        assert!(trained(3000.0).wait(64, 2).0 < rows);
        // Overload: the largest batches that the goal allows.
        assert_eq!(trained(50_000.0).wait(64, 1).0, 64);
    }

    #[test]
    fn the_rate_decays() {
        let mut learner = trained(3000.0);
        learner.arrived(1, seconds(100.0));
        assert_eq!(learner.wait(64, 1), (1, Duration::ZERO));
    }
}
