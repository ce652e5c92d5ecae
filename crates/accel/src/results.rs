//! The results of a region's program: its outputs, the new values of its variables, and donated arguments.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_hlo::{Program, Value};
use thalweg_kernel::{Operand, RegionVariable};
use thalweg_plan::Region;
use thalweg_tensor::{Context, Result, bail};

use crate::compile::{ArgumentSource, LoweredRegion, Operands, Source, initialized};

/// Collects the results of a region's program and prints the program as StableHLO text.
pub(crate) fn finish(
    region: &Region,
    mut program: Program,
    (arguments, values): (Vec<ArgumentSource>, &[Value]),
    operands: &[Operands],
    variables: &[RegionVariable],
) -> Result<LoweredRegion> {
    let mut results = Results { program: &program, values: Vec::new() };
    let outputs = results.outputs(region, operands, variables)?;
    let assigned = results.assigned(variables);
    let results = results.values;
    let result_bytes: Vec<usize> = results.iter().map(size_bytes).collect();
    let argument_bytes: Vec<usize> = values.iter().map(size_bytes).collect();
    let mut is_donated = vec![false; arguments.len()];
    let mut donors = vec![None; results.len()];
    // What goes on as it came, such as a value read before it is updated, needs its memory.
    let forwarded: BTreeSet<usize> =
        outputs.iter().chain(assigned.values()).filter_map(Source::argument).collect();
    for (index, argument) in arguments.iter().enumerate() {
        if let ArgumentSource::Variable(position) = argument
            && let Some(Source::Result(result)) = assigned.get(position)
            && !forwarded.contains(&index)
            // A value of another size is replaced after the locks are released, and may be read until then.
            && argument_bytes.get(index) == Some(&result_bytes[*result])
        {
            program.donate(index);
            is_donated[index] = true;
            donors[*result] = Some(index);
        }
    }
    let num_results = results.len();
    let text = program.finish(&results)?;
    let assigned = assigned.into_iter().collect();
    Ok(LoweredRegion {
        text,
        arguments,
        num_results,
        outputs,
        is_donated,
        result_bytes,
        donors,
        assigned,
        word_makers: Vec::new(),
        num_words: 0,
        has_fused_attention: false,
    })
}

/// The results of a program while they are collected.
struct Results<'a> {
    program: &'a Program,
    values: Vec<Value>,
}

impl Results<'_> {
    /// The sources of the region's outputs.
    fn outputs(
        &mut self,
        region: &Region,
        operands: &[Operands],
        variables: &[RegionVariable],
    ) -> Result<Vec<Source>> {
        let mut outputs: Vec<Source> = Vec::with_capacity(region.outputs.len());
        for (i, e) in region.outputs.iter().enumerate() {
            // What the host and the device read are two outputs of one value.
            if let Some(same) = region.outputs[..i].iter().position(|other| other == e) {
                outputs.push(outputs[same].clone());
                continue;
            }
            outputs.push(match &operands[e.node.index()][e.index as usize] {
                Operand::Value(value) => self.source(value),
                Operand::Host(tensor) => Source::Known(tensor.clone()),
                Operand::Variable(position) => {
                    let value = initialized(&variables[*position]);
                    self.source(value.context(|| &*region.body.node(e.node).name)?)
                }
                Operand::List(_) => bail!(Internal, "a list leaves a region"),
                Operand::Unread(_) => {
                    bail!(Unimplemented, "a value that no branch computes is read")
                }
            });
        }
        Ok(outputs)
    }

    /// The sources of the new values of the variables that the region assigns, by position.
    fn assigned(&mut self, variables: &[RegionVariable]) -> BTreeMap<usize, Source> {
        let mut assigned: BTreeMap<usize, Source> = BTreeMap::new();
        for (position, variable) in variables.iter().enumerate() {
            if let (true, Some(value)) = (variable.is_assigned, &variable.value) {
                assigned.insert(position, self.source(value));
            }
        }
        assigned
    }

    /// The source of a value, which becomes another result if it is no argument of the program.
    fn source(&mut self, value: &Value) -> Source {
        match self.program.argument_index(value) {
            Some(index) => Source::Argument(index),
            None => {
                self.values.push(value.clone());
                Source::Result(self.values.len() - 1)
            }
        }
    }
}

impl Source {
    /// The position of the argument that this is, if it is one.
    fn argument(&self) -> Option<usize> {
        match self {
            Source::Argument(index) => Some(*index),
            Source::Result(_) | Source::Known(_) => None,
        }
    }
}

/// The size of a value in bytes.
fn size_bytes(value: &Value) -> usize {
    value.num_elements() * value.dtype().size()
}
