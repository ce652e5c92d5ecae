//! Derived forms: a tensor's elements in another layout, cached with the tensor. Matrix products keep
//! packed weights this way.
//!
//! A form is derived once and shared by all references to the tensor. Elements change only through the
//! last reference, and writing drops the derived form first, so it is never stale.

use std::sync::atomic::Ordering;

use crate::Tensor;

/// Identity of a derived form: two forms of the same elements with equal descriptions are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Name of the rule by which it is derived, unique in the program.
    pub rule: &'static str,
    /// Further parameters of the rule.
    pub sizes: [usize; 4],
}

/// A derived form.
pub(crate) struct Derived {
    form: Form,
    pub(crate) elements: Tensor,
}

impl Tensor {
    /// This form of the elements, made by `derive` if the tensor has none yet. A tensor keeps one form.
    /// The first request makes none, since most tensors are used once; there is none either if `derive`
    /// fails or the tensor has another form.
    pub fn derived(&self, form: Form, derive: impl FnOnce() -> Option<Tensor>) -> Option<&Tensor> {
        let head = self.0.head();
        if !head.was_asked.load(Ordering::Relaxed) {
            head.was_asked.store(true, Ordering::Relaxed);
            return None;
        }
        if head.derived.get().is_none() {
            let made = Derived { form, elements: derive()? };
            // If another thread set a form first, that one stays.
            let _ = head.derived.set(Box::new(made));
        }
        head.derived.get().filter(|derived| derived.form == form).map(|derived| &derived.elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::{Budget, DType, Shape};

    const FORM: Form = Form { rule: "doubled", sizes: [2, 0, 0, 0] };

    fn doubled(of: &Tensor) -> Option<Tensor> {
        let twice: Vec<f32> = of.as_slice::<f32>().ok()?.iter().map(|x| 2.0 * x).collect();
        Tensor::vector(&twice).ok()
    }

    fn zeros(len: usize, budget: &Arc<Budget>) -> Option<Tensor> {
        Tensor::zeros_in(DType::Float, Shape::new(&[len]).ok()?, Some(budget)).ok()
    }

    fn ask(tensor: &Tensor) -> Option<Vec<f32>> {
        let form = tensor.derived(FORM, || doubled(tensor))?;
        Some(form.as_slice().unwrap().to_vec())
    }

    fn there(tensor: &Tensor) -> bool {
        tensor.0.head().derived.get().is_some()
    }

    #[test]
    fn it_is_made_when_asked_for_again_and_shared_by_clones() {
        let tensor = Tensor::vector(&[1.0f32, 3.0]).unwrap();
        assert_eq!(ask(&tensor), None);
        let clone = tensor.clone();
        assert_eq!(ask(&clone), Some(vec![2.0, 6.0]));
        let form = tensor.derived(FORM, || panic!("it is there")).unwrap();
        let same = clone.derived(FORM, || panic!("it is there")).unwrap();
        assert!(form.shares_memory_with(same));
        let other = Form { sizes: [3, 0, 0, 0], ..FORM };
        assert!(tensor.derived(other, || panic!("there is one")).is_none());
    }

    #[test]
    fn what_cannot_be_made_is_asked_for_again() {
        let tensor = Tensor::vector(&[1.0f32]).unwrap();
        for _ in 0..3 {
            assert!(tensor.derived(FORM, || None).is_none());
        }
        assert_eq!(ask(&tensor), Some(vec![2.0]));
    }

    #[test]
    fn it_goes_before_the_elements_change() {
        type Change = fn(&mut Tensor);
        let changes: [Change; 4] = [
            |t| t.as_mut_slice::<f32>().unwrap()[0] = 5.0,
            // SAFETY: the elements are floats.
            |t| unsafe { t.bytes_mut() }.unwrap()[..4].copy_from_slice(&5f32.to_le_bytes()),
            |t| {
                t.make_unique(None).unwrap();
                t.as_mut_slice::<f32>().unwrap()[0] = 5.0;
            },
            |t| {
                // Through a view that is the only way left.
                let mut view = t.rows(0, 2, None).unwrap();
                assert_eq!((ask(&view), ask(&view).unwrap()[0]), (None, 2.0));
                *t = Tensor::scalar(0f32);
                view.as_mut_slice::<f32>().unwrap()[0] = 5.0;
                assert!(!there(&view));
                *t = view;
            },
        ];
        for change in changes {
            let mut tensor = Tensor::vector(&[1.0f32, 3.0]).unwrap();
            ask(&tensor);
            assert!(ask(&tensor).is_some());
            change(&mut tensor);
            assert!(!there(&tensor));
            assert_eq!((ask(&tensor), ask(&tensor)), (None, Some(vec![10.0, 6.0])));
        }
    }

    #[test]
    fn a_view_that_changes_its_parent_leaves_no_form_of_it() {
        let mut tensor = Tensor::vector(&[1.0f32, 3.0]).unwrap();
        ask(&tensor);
        ask(&tensor);
        let copy = tensor.clone();
        let mut view = tensor.reshaped(Shape::new(&[2, 1]).unwrap()).unwrap();
        assert!(there(&copy) && !there(&view));
        drop(copy);
        view.as_mut_slice::<f32>().unwrap()[1] = 4.0;
        assert!(view.0.root().head().derived.get().is_none());
        tensor = view.reshaped(Shape::new(&[2]).unwrap()).unwrap();
        assert_eq!((ask(&tensor), ask(&tensor)), (None, Some(vec![2.0, 8.0])));
    }

    #[test]
    fn recycled_blocks_have_none() {
        let budget = Budget::new(1 << 20);
        for _ in 0..100 {
            let shape = Shape::new(&[777]).unwrap();
            let tensor = Tensor::zeros_in(DType::Float, shape, None).unwrap();
            let derive = || zeros(500, &budget);
            assert!(tensor.derived(FORM, derive).is_none());
            assert!(tensor.derived(FORM, derive).is_some());
            assert!(budget.used_bytes() >= 2000);
            drop(tensor);
            assert_eq!(budget.used_bytes(), 0);
        }
    }

    #[test]
    fn its_charge_goes_with_that_of_the_elements() {
        let (first, second) = (Budget::new(1 << 20), Budget::new(1 << 20));
        let tensor = zeros(1000, &first).unwrap();
        for _ in 0..2 {
            tensor.derived(FORM, || zeros(1000, &first));
        }
        let used = first.used_bytes();
        assert!(used >= 8000);
        tensor.charge_to(&second).unwrap();
        assert_eq!((first.used_bytes(), second.used_bytes()), (0, used));
        drop(tensor);
        assert_eq!(second.used_bytes(), 0);
    }
}
