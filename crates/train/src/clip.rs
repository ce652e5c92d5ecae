//! Gradient clipping.

use thalweg_api::{Any, Graph, Output, tf};

use crate::Variable;
use crate::gradient::Gradients;
use crate::view::like;

/// How gradients are clipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clip {
    /// Clips every element to `[-limit, limit]` (`clip_by_value`).
    Value(f32),
    /// Clips the L2 norm of each variable's gradient (`clip_by_norm`).
    Norm(f32),
    /// Clips the global L2 norm of all gradients (`clip_by_global_norm`).
    GlobalNorm(f32),
}

impl Clip {
    /// Clips the gradients, each in the view that `place` returns for its variable.
    pub(crate) fn apply(
        self,
        view: &Graph,
        gradients: &Gradients,
        place: impl Fn(&Variable) -> Graph,
    ) -> Gradients {
        let values: Vec<Output<Any>> =
            gradients.iter().map(|(v, gradient)| gradient.values().within(&place(v))).collect();
        let clipped: Vec<Output<Any>> = match self {
            Clip::Value(limit) => {
                let limit = f64::from(limit);
                values.iter().map(|x| x.clip(like(x, -limit), like(x, limit))).collect()
            }
            Clip::Norm(limit) => values.iter().map(|x| x * factor(&x.l2_loss(), limit)).collect(),
            Clip::GlobalNorm(limit) => {
                let squares: Vec<Output<Any>> = values.iter().map(Output::l2_loss).collect();
                let factor = factor(&tf::add_n(view, &squares), limit);
                values.iter().map(|x| x * &factor).collect()
            }
        };
        let with = |((variable, gradient), values): (&(Variable, _), _)| {
            let gradient: &crate::Gradient = gradient;
            (variable.clone(), gradient.with_values(values))
        };
        gradients.iter().zip(clipped).map(with).collect()
    }
}

/// The factor that scales a norm down to `limit`, computed from half the squared norm; 1 where the
/// norm is below.
fn factor(half_square: &Output<Any>, limit: f32) -> Output<Any> {
    let limit = like(half_square, f64::from(limit));
    let norm = (half_square * like(half_square, 2.0)).sqrt();
    &limit / norm.maximum(&limit)
}
