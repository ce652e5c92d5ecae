//! Branches, loops and calls of the plugin's own operations.

use thalweg_tensor::DType;

use crate::program::Program;
use crate::value::{Dims, Value, type_text};

/// A block of operations that belongs to a branch or loop, under construction.
pub struct Block {
    pub(crate) arguments: Vec<Value>,
    pub(crate) text: String,
}

impl Block {
    /// The block's arguments.
    pub fn arguments(&self) -> &[Value] {
        &self.arguments
    }

    /// The text of the block, which returns `results`.
    pub(crate) fn finish(&self, results: &[Value]) -> String {
        let declared: Vec<String> =
            self.arguments.iter().map(|v| format!("%{}: {}", v.id, v.ty())).collect();
        let header = match &declared[..] {
            [] => String::new(),
            _ => format!("^bb0({}):\n", declared.join(", ")),
        };
        let names: Vec<String> = results.iter().map(|r| format!("%{}", r.id)).collect();
        let types: Vec<String> = results.iter().map(Value::ty).collect();
        let returned = match results {
            [] => "\"stablehlo.return\"() : () -> ()".to_owned(),
            _ => format!("stablehlo.return {} : {}", names.join(", "), types.join(", ")),
        };
        format!("{{\n{header}{}{returned}\n}}", self.text)
    }
}

impl Program {
    /// An empty block with arguments of the types of these values.
    pub fn block(&self, like: &[Value]) -> Block {
        let arguments = like.iter().map(|v| self.body.new_value(v.dtype, &v.dims)).collect();
        Block { arguments, text: String::new() }
    }

    /// Runs `build`, whose operations are appended to the block.
    pub fn within<R>(&self, block: &mut Block, build: impl FnOnce() -> R) -> R {
        self.body.open(std::mem::take(&mut block.text));
        let made = build();
        block.text = self.body.close();
        made
    }

    /// Of a scalar index (int32): the results of the block at this position, the last one if there is
    /// none. All blocks have results of the same types, and may use values of the program around them.
    pub fn case(&self, index: &Value, blocks: &[(Block, Vec<Value>)]) -> Vec<Value> {
        self.select_block("case", index, blocks)
    }

    /// Of a scalar condition: the results of the first block if it holds, else those of the second.
    pub fn branch(&self, condition: &Value, blocks: &[(Block, Vec<Value>); 2]) -> Vec<Value> {
        self.select_block("if", condition, blocks)
    }

    fn select_block(
        &self,
        operation: &str,
        selector: &Value,
        blocks: &[(Block, Vec<Value>)],
    ) -> Vec<Value> {
        let results = blocks.first().map(|(_, results)| types_of(results)).unwrap_or_default();
        if blocks.iter().any(|(_, other)| types_of(other) != results) {
            self.body.mistake("the branches of a conditional have results of different types");
        }
        let texts: Vec<String> = blocks.iter().map(|(block, r)| block.finish(r)).collect();
        let regions = format!(" ({})", texts.join(", "));
        self.body.append_all(operation, &[selector], &regions, "", &results)
    }

    /// Repeats `body` on the values as long as `condition` holds. Both blocks have an argument for each
    /// value, and may use values of the program around them.
    pub fn repeat(
        &self,
        initial: &[Value],
        (condition, goes_on): (&Block, &Value),
        (body, results): (&Block, &[Value]),
    ) -> Vec<Value> {
        let types = types_of(initial);
        if types_of(results) != types {
            self.body.mistake("the body of a loop changes the types of its values");
        }
        let texts = [condition.finish(std::slice::from_ref(goes_on)), body.finish(results)];
        let operands: Vec<&Value> = initial.iter().collect();
        let regions = format!(" ({})", texts.join(", "));
        self.body.append_all("while", &operands, &regions, "", &types)
    }
}

fn types_of(values: &[Value]) -> Vec<(DType, Dims)> {
    values.iter().map(|v| (v.dtype, v.dims.clone())).collect()
}

impl Value {
    /// Of a scalar condition: the results of `yes` if it holds, else those of `no`. Both may use values
    /// of the program around them.
    pub fn branch(
        &self,
        yes: impl FnOnce() -> Vec<Value>,
        no: impl FnOnce() -> Vec<Value>,
    ) -> Vec<Value> {
        let (then, results) = self.body.region(&[], |_| yes());
        let (otherwise, other_results) = self.body.region(&[], |_| no());
        if results != other_results {
            self.body.mistake("the branches of a conditional have results of different types");
        }
        self.body.append_all("if", &[self], &format!(" ({then}, {otherwise})"), "", &results)
    }

    /// Of a scalar index (int32): the results of the branch at this position, the last one if there is
    /// none.
    pub fn case(&self, branches: Vec<Box<dyn FnOnce() -> Vec<Value> + '_>>) -> Vec<Value> {
        let regions: Vec<(String, Vec<(DType, Dims)>)> =
            branches.into_iter().map(|branch| self.body.region(&[], |_| branch())).collect();
        let results = regions.first().map(|(_, types)| types.clone()).unwrap_or_default();
        if regions.iter().any(|(_, types)| *types != results) {
            self.body.mistake("the branches of a case have results of different types");
        }
        let texts: Vec<String> = regions.into_iter().map(|(text, _)| text).collect();
        self.body.append_all("case", &[self], &format!(" ({})", texts.join(", ")), "", &results)
    }

    /// Repeats `body` on the values as long as `condition` holds; both get the values of an iteration.
    pub fn repeat_while(
        initial: &[Value],
        condition: impl FnOnce(&[Value]) -> Value,
        body: impl FnOnce(&[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let first = &initial[0];
        let types: Vec<(DType, Dims)> = initial.iter().map(|v| (v.dtype, v.dims.clone())).collect();
        let (condition, _) = first.body.region(&types, |v| vec![condition(v)]);
        let (body, results) = first.body.region(&types, body);
        if results != types {
            let text = |types: &[(DType, Dims)]| {
                types.iter().map(|(d, dims)| type_text(*d, dims)).collect::<Vec<_>>().join(", ")
            };
            first.body.mistake(&format!(
                "the body of a loop changes the types of its values from ({}) to ({})",
                text(&types),
                text(&results)
            ));
        }
        let operands: Vec<&Value> = initial.iter().collect();
        first.body.append_all("while", &operands, &format!(" ({condition}, {body})"), "", &types)
    }

    /// The values, which the compiler computes before anything that reads one of the results.
    pub fn barrier(values: &[Value]) -> Vec<Value> {
        let types: Vec<(DType, Dims)> = values.iter().map(|v| (v.dtype, v.dims.clone())).collect();
        let operands: Vec<&Value> = values.iter().collect();
        let first = values.first();
        first.map_or_else(Vec::new, |first| {
            first.body.append_all("optimization_barrier", &operands, "", "", &types)
        })
    }

    /// Calls an operation of the plugin by name; `attrs` follow the target's name.
    pub fn custom_call(
        &self,
        target: &str,
        operands: &[&Value],
        attrs: &str,
        results: &[(DType, &[usize])],
    ) -> Vec<Value> {
        let results: Vec<(DType, Dims)> =
            results.iter().map(|(d, dims)| (*d, (*dims).into())).collect();
        let attrs = format!(" {{call_target_name = \"{target}\"{attrs}}}");
        self.body.append_all("custom_call", operands, "", &attrs, &results)
    }
}
