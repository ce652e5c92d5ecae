//! Checkpoints of a training, written concurrently with its steps and at its end.

use thalweg_cluster::RemoteSession;
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Context, Result, Tensor, bail, err};

use super::evaluation::Evaluator;
use super::program::Program;
use super::replica::{FINISHED, Replica};
use super::shared::Shared;
use super::{Event, Plan};
use crate::RunSteps;

/// Saves all variables and records the number of saved updates for the workers. Returns the prefix,
/// and the number of updates that it holds.
pub(super) fn save(
    plan: &Plan<'_>,
    shared: &Shared,
    program: &Program,
    session: &RemoteSession,
) -> Result<(String, u64)> {
    let mut checkpoints = shared.leading.lock();
    // Variables that were lost are to be restored, not saved.
    if Replica::new(plan, shared, 0, program).generation(session)?.is_none() {
        bail!(Aborted, "the variables were lost");
    }
    let (begin, generation) = (shared.elapsed(), shared.generation());
    let most = plan.options.save_time_max;
    let run = |feed: (&str, Tensor), fetches: &[&str], targets: &[&str]| {
        let options = RunOptions {
            timeout: Some(most.saturating_sub(shared.elapsed().saturating_sub(begin))),
            cancellation: Some(shared.cancellation()),
            ..RunOptions::default()
        };
        let found = session.run_step_with(&options, &[feed], fetches, targets);
        found
            .map(|(tensors, _)| tensors)
            .context(|| format!("writing a checkpoint, with a deadline of {most:?}"))
    };
    let base = format!("{}/model", plan.options.folder.trim_end_matches('/'));
    let (fed, fetches, targets) = &program.lead.save;
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let found = run((fed, Tensor::scalar_string(base)), &fetches, &targets)?;
    let prefix =
        found[0].strings()?.first().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let prefix =
        prefix.ok_or_else(|| err!(Internal, "internal error: the checkpoint has no prefix"))?;
    let updates = found[1].scalar_value::<i64>()?;
    checkpoints.keep(shared.control.kept());
    checkpoints.add(&prefix)?;
    let (fed, node) = &program.lead.set_saved;
    run((fed, Tensor::scalar(updates)), &[], &[node])?;
    let updates = updates.max(0) as u64;
    shared.note_saved(generation, updates);
    *shared.checkpoint.lock() = Some(prefix.clone());
    drop(checkpoints);
    shared.saved(plan, &prefix, updates, shared.elapsed().saturating_sub(begin));
    Ok((prefix, updates))
}

/// Evaluates a checkpoint and reports the result; an error ends training.
pub(super) fn evaluate(
    plan: &Plan<'_>,
    shared: &Shared,
    evaluator: &Evaluator<'_>,
    (checkpoint, updates): (&str, u64),
) {
    let evaluated = evaluator.evaluate(checkpoint, updates);
    match evaluated.context(|| format!("evaluating {checkpoint}")) {
        Ok(evaluation) => {
            shared.evaluations.lock().push(evaluation.clone());
            shared.tell(plan, &Event::Evaluated(evaluation.clone()));
            shared.call(plan, |callback, control| callback.on_evaluation(&evaluation, control));
        }
        Err(error) => shared.fail(error),
    }
}

/// Writes the last checkpoint and evaluates it, restores the best one if a callback asked for that,
/// and marks training as finished for the workers of other processes.
pub(super) fn end(plan: &Plan<'_>, shared: &Shared, program: &Program) -> Result<()> {
    let session = plan.cluster.session(0, &program.graph)?;
    // A parameter server that was lost after the last step does not end training: it continues from the
    // checkpoint.
    let (checkpoint, updates) = save(plan, shared, program, &session)?;
    let is_evaluated =
        || shared.evaluations.lock().iter().any(|other| other.checkpoint == checkpoint);
    if let Some(evaluator) = plan.evaluator.as_ref().filter(|_| !is_evaluated()) {
        evaluate(plan, shared, evaluator, (&checkpoint, updates));
    }
    let replica = Replica::new(plan, shared, 0, program);
    if let Some(prefix) = shared.control.restored() {
        let (fed, node) = &program.lead.restore_model;
        replica.run_step(
            &session,
            &[(fed, Tensor::scalar_string(prefix.clone()))],
            &[],
            &[node],
        )?;
        *shared.checkpoint.lock() = Some(prefix);
    }
    replica.set_generation(&session, FINISHED)
}
