//! Sorting.

use thalweg_tensor::DType;

use crate::value::{Dims, Value};

impl Value {
    /// Sorts several values of the same dimensions together along a dimension, stably. `is_before` gets
    /// for each value the two elements that are compared.
    pub fn sort_together(
        values: &[Value],
        dim: usize,
        is_before: impl FnOnce(&[(Value, Value)]) -> Value,
    ) -> Vec<Value> {
        let first = &values[0];
        let scalars: Vec<(DType, Dims)> =
            values.iter().flat_map(|v| [(v.dtype, Dims::new()), (v.dtype, Dims::new())]).collect();
        let (region, _) = first.body.region(&scalars, |args| {
            let pairs: Vec<(Value, Value)> =
                args.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            vec![is_before(&pairs)]
        });
        let operands: Vec<&Value> = values.iter().collect();
        let results: Vec<(DType, Dims)> =
            values.iter().map(|v| (v.dtype, v.dims.clone())).collect();
        let attrs = format!(" {{dimension = {dim} : i64, is_stable = true}}");
        first.body.append_all("sort", &operands, &format!(" ({region})"), &attrs, &results)
    }
}
