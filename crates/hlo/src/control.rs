//! Branches, loops and calls of the plugin's own operations.

use thalweg_tensor::DType;

use crate::value::{Dims, Value, type_text};

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
