//! Loops of a region: a `While` is a loop of its program.
//!
//! The values of the loop are the loop variables that change, the variables that it may assign, and of each list
//! its rows and, unless that stays the same, its length. Rows are of one size in all iterations: what a trial
//! run of the body pushes in an iteration, and how often the loop runs at most, give their number.

use thalweg_hlo::{Block, Value};
use thalweg_kernel::{Elements, List, Operand, RegionVariable};
use thalweg_plan::forwarded_arguments;
use thalweg_tensor::{Result, Tensor, bail, ensure, err};

use crate::compile::Body;
use crate::control::{Callee, Truth, check_types, has_length_of, is_same, truth};
use crate::trips::{Trips, trips};

/// A loop variable that changes.
struct Carried {
    /// Its position among the loop's inputs.
    input: usize,
    /// What it is before the loop.
    initial: Operand,
    /// How its length changes, if it is a list.
    growth: Option<Growth>,
}

/// How the length of a list changes in one iteration.
#[derive(Clone, Copy, Default)]
struct Growth {
    /// By so many elements.
    by: i64,
    /// It is by so many elements longer at most than at the beginning of the iteration.
    most: i64,
    /// Whether the length is carried as a value.
    is_carried: bool,
}

/// What a loop is made of.
struct Loop<'a> {
    cond: &'a Callee,
    body: &'a Callee,
    inputs: &'a [Operand],
    carried: Vec<Carried>,
    /// The variables of the region that it may assign.
    held: Vec<usize>,
    trips: Option<Trips>,
}

impl Body<'_> {
    /// Lowers a loop.
    pub(crate) fn repeat(
        &mut self,
        cond: &Callee,
        body: &Callee,
        inputs: &[Operand],
    ) -> Result<Vec<Operand>> {
        let functions = [cond, body].map(|f| self.graph.function_body(&f.name, &f.attrs));
        let [cond_body, body_body] = functions;
        let (cond_body, body_body) = (cond_body?, body_body?);
        let trips =
            trips(self.evaluator, &cond_body, &body_body, inputs, &mut self.evaluations_left);
        if trips.as_ref().is_some_and(|trips| trips.max == 0) {
            return Ok(inputs.to_vec());
        }
        let forwarded = forwarded_arguments(&body_body);
        let carried =
            inputs.iter().enumerate().filter(|(i, _)| forwarded.get(*i) != Some(&Some(*i)));
        let carried = carried
            .map(|(input, initial)| Carried { input, initial: initial.clone(), growth: None })
            .collect();
        let held = self.held_variables(inputs);
        let mut turns = Loop { cond, body, inputs, carried, held, trips };
        if turns.carried.iter().any(|c| matches!(c.initial, Operand::List(_))) {
            self.prepare_lists(&mut turns)?;
        }
        self.lower_loop(&turns)
    }

    /// The loop variables and held variables as values.
    fn initial_values(&self, turns: &Loop<'_>) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(turns.carried.len());
        for Carried { initial, growth, .. } in &turns.carried {
            self.flatten(initial, *growth, &mut values)?;
        }
        values.extend(turns.held.iter().filter_map(|&p| self.variables[p].value.clone()));
        Ok(values)
    }

    /// Adds the values that a loop variable is.
    fn flatten(
        &self,
        operand: &Operand,
        growth: Option<Growth>,
        values: &mut Vec<Value>,
    ) -> Result<()> {
        match (operand, growth) {
            (Operand::List(list), Some(growth)) => {
                values.extend(list.rows.clone());
                if growth.is_carried {
                    values.push(list.length(self.program));
                }
            }
            (Operand::List(_), None) | (_, Some(_)) => {
                bail!(Unimplemented, "a loop variable is a list in some iterations only")
            }
            (other, None) => values.push(self.value(other)?),
        }
        Ok(())
    }

    /// Sets the variables to what they are in a block of a loop; the arguments of its function.
    fn enter(&mut self, block: &Block, turns: &Loop<'_>) -> Result<Vec<Operand>> {
        let mut values = block.arguments().iter().cloned();
        let mut next = || values.next().ok_or_else(|| err!(Internal, "a block lacks an argument"));
        let mut args = turns.inputs.to_vec();
        for Carried { input, initial, growth } in &turns.carried {
            args[*input] = match (initial, growth) {
                (Operand::List(list), Some(growth)) => {
                    let mut list = list.clone();
                    if list.rows.is_some() {
                        list.rows = Some(next()?);
                    }
                    list.offset_max = list.offset;
                    if growth.is_carried {
                        list.base = Some(next()?);
                        (list.offset, list.offset_max) = (0, 0);
                        // The rows suffice for what an iteration adds.
                        let rows = list.rows.as_ref().map_or(0, |rows| rows.dims()[0]);
                        let most = usize::try_from(growth.most).unwrap_or(0);
                        list.length_max = rows.saturating_sub(most);
                    }
                    Operand::List(list)
                }
                _ => Operand::Value(next()?),
            };
        }
        for &position in &turns.held {
            self.variables[position].value = Some(next()?);
        }
        Ok(args)
    }

    /// Finds how lists grow, and gives them the rows that they need.
    fn prepare_lists(&mut self, turns: &mut Loop<'_>) -> Result<()> {
        for carried in &mut turns.carried {
            if let Operand::List(list) = &carried.initial {
                let is_carried = list.base.is_some();
                carried.growth = Some(Growth { is_carried, ..Growth::default() });
            }
        }
        // Lists keep their lengths, unless a trial shows that they do not.
        loop {
            let tried = self.trial(turns);
            let mut is_new = false;
            for carried in &mut turns.carried {
                let Carried { initial: Operand::List(initial), growth: Some(growth), input } =
                    carried
                else {
                    continue;
                };
                let result = tried.as_ref().ok().and_then(|(_, results)| results.get(*input));
                // What is known of the elements must hold in all iterations.
                let elements = match result {
                    Some(Operand::List(result)) => initial.elements.with(&result.elements),
                    Some(_) => Elements::Any,
                    None => initial.elements.clone(),
                };
                if !elements.is(&initial.elements) {
                    initial.elements = elements;
                    is_new = true;
                }
                let keeps_length = match result {
                    Some(Operand::List(result)) => has_length_of(initial, result),
                    Some(_) => true,
                    None => false,
                };
                if !growth.is_carried && !keeps_length {
                    growth.is_carried = true;
                    is_new = true;
                }
            }
            if !is_new {
                let (args, results) = tried?;
                return self.give_rows(turns, &args, &results);
            }
        }
    }

    /// The arguments and results of the body in a run of which nothing is kept.
    fn trial(&mut self, turns: &Loop<'_>) -> Result<(Vec<Operand>, Vec<Operand>)> {
        let program = self.program;
        let before = self.variables.clone();
        let mut trial = program.block(&[]);
        let tried = program.within(&mut trial, || {
            let block = program.block(&self.initial_values(turns)?);
            let args = self.enter(&block, turns)?;
            let results = self.function(turns.body, &args)?;
            Ok((args, results))
        });
        self.variables = before;
        tried
    }

    /// Notes how lists grow, and gives them the rows that they need.
    fn give_rows(&self, turns: &mut Loop<'_>, args: &[Operand], results: &[Operand]) -> Result<()> {
        for Carried { input, initial, growth } in &mut turns.carried {
            let (Operand::List(initial), Some(growth)) = (initial, growth) else { continue };
            let (Operand::List(arg), Some(Operand::List(result))) =
                (&args[*input], results.get(*input))
            else {
                bail!(Unimplemented, "a loop variable is a list in some iterations only");
            };
            let is_derived = is_same(&arg.base, &result.base);
            ensure!(is_derived, Unimplemented, "the length of a list follows from no other");
            growth.by = result.offset - arg.offset;
            growth.most = result.offset_max - arg.offset;
            initial.has_unset |= result.has_unset;
            let rows = needed_rows(initial, growth.by, growth.most, turns.trips.as_ref())?;
            if let Some(rows_of) = result.rows.as_ref().or(initial.rows.as_ref()) {
                **initial = initial.with_rows(self.program, &rows_of.dims()[1..], rows)?;
            }
        }
        Ok(())
    }

    fn lower_loop(&mut self, turns: &Loop<'_>) -> Result<Vec<Operand>> {
        let program = self.program;
        let initial = self.initial_values(turns)?;
        ensure!(!initial.is_empty(), Unimplemented, "a loop in which nothing changes");
        let first_held = initial.len() - turns.held.len();
        let before = self.variables.clone();

        let mut cond_block = program.block(&initial);
        let args = self.enter(&cond_block, turns)?;
        let goes_on = program.within(&mut cond_block, || {
            let results = self.function(turns.cond, &args)?;
            let [result] = &results[..] else {
                bail!(InvalidArgument, "a condition has one result")
            };
            Ok(match truth(result)? {
                Truth::Known(is_true) => program.constant(&Tensor::scalar(is_true)),
                Truth::Value(value) => value,
            })
        })?;
        let of_held = &cond_block.arguments()[first_held..];
        ensure!(
            self.changed(&before, &turns.held, of_held).is_empty(),
            Unimplemented,
            "the condition of a loop assigns a variable"
        );

        let mut body_block = program.block(&initial);
        let args = self.enter(&body_block, turns)?;
        let results = program.within(&mut body_block, || self.function(turns.body, &args))?;
        ensure!(
            results.len() == turns.inputs.len(),
            InvalidArgument,
            "the body of a loop over {} values has {} results",
            turns.inputs.len(),
            results.len()
        );
        let mut returned: Vec<Value> = Vec::with_capacity(initial.len());
        program.within(&mut body_block, || {
            turns
                .carried
                .iter()
                .try_for_each(|c| self.flatten(&results[c.input], c.growth, &mut returned))
        })?;
        returned.extend(turns.held.iter().filter_map(|&p| self.variables[p].value.clone()));
        check_types(&initial, &returned, "a loop whose values change their shapes")?;
        let of_held = &body_block.arguments()[first_held..];
        let assigned = self.changed(&before, &turns.held, of_held);
        if let Some(&position) = assigned.iter().find(|p| !turns.held.contains(p)) {
            let name = &before[position].name;
            bail!(Unimplemented, "a loop assigns '{name}' for the first time");
        }
        let values = program.repeat(&initial, (&cond_block, &goes_on), (&body_block, &returned));
        self.leave(turns, before, &values, &assigned)
    }

    /// What the loop variables are after the loop, and sets the variables that it assigned.
    fn leave(
        &mut self,
        turns: &Loop<'_>,
        before: Vec<RegionVariable>,
        values: &[Value],
        assigned: &[usize],
    ) -> Result<Vec<Operand>> {
        let mut values = values.iter().cloned();
        let mut next = || values.next().ok_or_else(|| err!(Internal, "a loop lacks a result"));
        let ends = turns.trips.as_ref().and_then(|trips| trips.ends.as_ref());
        let mut outputs = turns.inputs.to_vec();
        for Carried { input, initial, growth } in &turns.carried {
            outputs[*input] = match (initial, growth) {
                (Operand::List(list), Some(growth)) => {
                    let mut list = list.clone();
                    if list.rows.is_some() {
                        list.rows = Some(next()?);
                    }
                    let length = if growth.is_carried { Some(next()?) } else { None };
                    let exact = turns.trips.as_ref().filter(|trips| trips.ends.is_some());
                    match (length, exact) {
                        (Some(_), Some(Trips { max, .. })) => {
                            let last = list.offset + (*max as i64 - 1) * growth.by;
                            list.offset += *max as i64 * growth.by;
                            let most = (last + growth.most).max(list.offset);
                            list.offset_max = list.offset_max.max(most);
                            let more = usize::try_from(*max as i64 * growth.by).unwrap_or(0);
                            list.length_max = list.known_length().unwrap_or(list.length_max + more);
                        }
                        (Some(length), None) => {
                            list.base = Some(length);
                            (list.offset, list.offset_max) = (0, 0);
                            list.length_max = list.rows.as_ref().map_or(0, |rows| rows.dims()[0]);
                        }
                        (None, _) => {
                            list.offset_max = list.offset_max.max(list.offset + growth.most);
                        }
                    }
                    Operand::List(list)
                }
                _ => {
                    let value = Operand::Value(next()?);
                    let end = ends.and_then(|ends| ends.get(input));
                    end.map_or(value, |tensor| Operand::Host(tensor.clone()))
                }
            };
        }
        self.variables = before;
        for &position in &turns.held {
            let value = next()?;
            if assigned.contains(&position) {
                self.assign(position, value);
            }
        }
        Ok(outputs)
    }
}

/// How many rows a list needs that grows by `by` elements, and up to `most`, in each iteration.
fn needed_rows(initial: &List, by: i64, most: i64, trips: Option<&Trips>) -> Result<usize> {
    let length = initial.length_max as i64;
    let needed = match trips {
        _ if by <= 0 => Some(length.saturating_add(most)),
        Some(trips) => by
            .checked_mul(trips.max as i64 - 1)
            .and_then(|more| length.checked_add(more)?.checked_add(most)),
        // Pushes beyond that are errors.
        None => initial.elements_max.and_then(|n| i64::try_from(n).ok()?.checked_add(most)),
    };
    needed
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(|| err!(Unimplemented, "how long a list becomes in a loop is not known"))
}
