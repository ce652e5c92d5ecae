//! A step of a worker: a batch, fed as a whole or in micro-batches.

use thalweg_cluster::RemoteSession;
use thalweg_tensor::{Result, Tensor, err};

use super::Step;
use super::program::AccumulationNames;
use super::replica::{Lease, Replica, Trouble};
use crate::metrics::{Metric, Sums};

/// The loss and the metrics of a batch, summed over its micro-batches.
struct Values {
    loss: Sums,
    metrics: Vec<Sums>,
}

impl Values {
    /// Adds what a run fetched: the loss, then the statistics of the metrics.
    fn add(&mut self, loss: &Tensor, statistics: &[Tensor], samples: usize) -> Result<()> {
        self.loss.add(loss, samples)?;
        for (sums, statistics) in self.metrics.iter_mut().zip(statistics) {
            sums.add(statistics, samples)?;
        }
        Ok(())
    }
}

impl Replica<'_> {
    /// Runs a step; returns the number of updates that were saved then.
    pub(super) fn step(
        &self,
        session: &RemoteSession,
        generation: i64,
        lease: Lease,
    ) -> Result<(Step, u64), Trouble> {
        for callback in self.plan.callbacks {
            callback.on_step_begin(self.worker).map_err(Trouble::Final)?;
        }
        let indices = self.plan.shards.batch(lease.shard, lease.used, self.plan.options.batch);
        let names = &self.program.step;
        let metrics = names.metrics.iter().map(|(_, metric, _)| metric.sums());
        let mut values = Values { loss: Metric::mean_of_samples(), metrics: metrics.collect() };
        let last = match &self.program.accumulation {
            Some(accumulation) => self.accumulate(session, accumulation, &indices, &mut values)?,
            None => &indices,
        };
        let mut feeds = self.batch(last)?;
        if let Some(accumulation) = &self.program.accumulation {
            feeds.push((&accumulation.weight, weight(last, &indices)));
        }
        let numbers = [
            self.worker as i64,
            generation,
            lease.shard as i64,
            lease.used as i64,
            indices.len() as i64,
        ];
        feeds.extend(names.batch.iter().map(String::as_str).zip(numbers.map(Tensor::scalar)));
        let mut fetches = vec![names.loss.as_str(), &names.counts[0], &names.counts[1]];
        fetches.extend(names.metrics.iter().map(|(_, _, name)| name.as_str()));
        let coordinated = &self.program.coordinated;
        fetches.extend(coordinated.used.as_deref());
        let summary = names.summary.as_deref().filter(|_| self.shared.takes_summary(self.plan));
        fetches.extend(summary);
        let found = self.run_step(session, &feeds, &fetches, &[&coordinated.step]);
        let mut found = match (found, summary) {
            (found, None) => found?,
            (found, Some(_)) => self.without_summary(found)?,
        };
        let is_used = match coordinated.used {
            Some(_) => found.pop().map_or(Ok(true), |used| used.scalar_value())?,
            None => true,
        };
        values.add(&found[0], &found[3..], last.len())?;
        let step = Step {
            worker: self.worker,
            updates: found[1].scalar_value::<i64>()?.max(0) as u64,
            samples: indices.len(),
            is_used,
            loss: values.loss.value(),
            metrics: values.metrics.iter().map(Sums::value).collect(),
        };
        Ok((step, found[2].scalar_value::<i64>()?.max(0) as u64))
    }

    /// The samples as feeds.
    fn batch(&self, indices: &[usize]) -> Result<Vec<(&str, Tensor)>, Trouble> {
        let tensors = self.plan.samples.batch(indices).map_err(Trouble::Final)?;
        Ok(self.program.step.inputs.iter().map(String::as_str).zip(tensors).collect())
    }

    /// Accumulates the gradients of all micro-batches but the last, which it returns.
    fn accumulate<'i>(
        &self,
        session: &RemoteSession,
        accumulation: &AccumulationNames,
        indices: &'i [usize],
        values: &mut Values,
    ) -> Result<&'i [usize], Trouble> {
        let names = &self.program.step;
        let mut fetches = vec![names.loss.as_str()];
        fetches.extend(names.metrics.iter().map(|(_, _, name)| name.as_str()));
        let size = indices.len().div_ceil(self.plan.options.micro_batches).max(1);
        let mut parts: Vec<&[usize]> = indices.chunks(size).collect();
        let last = parts.pop().unwrap_or_default();
        if parts.is_empty() {
            // One sample: the buffers must hold nothing.
            let mut feeds = self.batch(last)?;
            feeds.push((&accumulation.weight, Tensor::scalar(0.0f32)));
            self.run_step(session, &feeds, &[], &[&accumulation.first])?;
        }
        for (i, part) in parts.into_iter().enumerate() {
            let mut feeds = self.batch(part)?;
            feeds.push((&accumulation.weight, weight(part, indices)));
            let target = if i == 0 { &accumulation.first } else { &accumulation.add };
            let found = self.run_step(session, &feeds, &fetches, &[target])?;
            values.add(&found[0], &found[1..], part.len())?;
        }
        Ok(last)
    }

    /// The fetches of a step without the summary, which is the last one and is recorded here.
    fn without_summary(&self, found: Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        let noted = found.and_then(|mut found| {
            let summary = found
                .pop()
                .ok_or_else(|| err!(Internal, "internal error: the step returned no fetches"))?;
            let summary = summary.strings()?.first().cloned().unwrap_or_default();
            Ok((found[1].scalar_value::<i64>()?.max(0) as u64, summary, found))
        });
        match noted {
            Ok((updates, summary, found)) => {
                self.shared.note_summary(self.plan, Some((updates, summary)));
                Ok(found)
            }
            Err(error) => {
                self.shared.note_summary(self.plan, None);
                Err(error)
            }
        }
    }
}

/// The weight of a micro-batch in the mean over the batch.
fn weight(part: &[usize], all: &[usize]) -> Tensor {
    Tensor::scalar(part.len() as f32 / all.len().max(1) as f32)
}
