//! Fetches of a step, by handle: each says what its tensor becomes.

use thalweg_tensor::{Context, Result, Tensor, err};

use crate::dtype::TensorType;
use crate::output::{Output, Raw};
use crate::value::FromTensor;
use crate::variable::Variable;

/// Handles to fetch that become an `R`: one handle, a tuple, an array, a slice or a vector of them,
/// or `()` for nothing.
pub trait Fetch<R> {
    /// Calls `visit` with each handle, in order.
    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&Raw));

    /// The value that the tensors, in that order, become.
    #[doc(hidden)]
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R>;
}

impl<T: TensorType, R: FromTensor<T>> Fetch<R> for Output<T> {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.raw());
    }

    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R> {
        let tensor = tensors.next().ok_or_else(|| err!(Internal, "a fetch has no tensor"))?;
        R::from_tensor(tensor).context(|| format!("fetch of '{}'", self.name().unwrap_or_default()))
    }
}

impl<T: TensorType, R: FromTensor<T>> Fetch<R> for Variable<T> {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        Fetch::<R>::visit(Variable::value(self), visit);
    }

    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R> {
        Fetch::<R>::value(Variable::value(self), tensors)
    }
}

impl<R, F: Fetch<R> + ?Sized> Fetch<R> for &F {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        (**self).visit(visit);
    }

    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R> {
        (**self).value(tensors)
    }
}

impl<R, F: Fetch<R>> Fetch<Vec<R>> for [F] {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self.iter().for_each(|fetch| fetch.visit(visit));
    }

    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<Vec<R>> {
        self.iter().map(|fetch| fetch.value(tensors)).collect()
    }
}

impl<R, F: Fetch<R>> Fetch<Vec<R>> for Vec<F> {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self[..].visit(visit);
    }

    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<Vec<R>> {
        self[..].value(tensors)
    }
}

impl<R, F: Fetch<R>, const COUNT: usize> Fetch<[R; COUNT]> for [F; COUNT] {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self[..].visit(visit);
    }

    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<[R; COUNT]> {
        let values: Vec<R> = self[..].value(tensors)?;
        values.try_into().map_err(|_| err!(Internal, "as many values as fetches"))
    }
}

impl Fetch<()> for () {
    fn visit(&self, _: &mut dyn FnMut(&Raw)) {}

    fn value(&self, _: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($f:ident $r:ident $i:tt),+);)+) => { $(
        impl<$($r, $f: Fetch<$r>),+> Fetch<($($r,)+)> for ($($f,)+) {
            fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
                $(self.$i.visit(visit);)+
            }

            fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<($($r,)+)> {
                Ok(($(self.$i.value(tensors)?,)+))
            }
        }
    )+ };
}

tuples! {
    (A Ra 0);
    (A Ra 0, B Rb 1);
    (A Ra 0, B Rb 1, C Rc 2);
    (A Ra 0, B Rb 1, C Rc 2, D Rd 3);
    (A Ra 0, B Rb 1, C Rc 2, D Rd 3, E Re 4);
    (A Ra 0, B Rb 1, C Rc 2, D Rd 3, E Re 4, F Rf 5);
    (A Ra 0, B Rb 1, C Rc 2, D Rd 3, E Re 4, F Rf 5, G Rg 6);
    (A Ra 0, B Rb 1, C Rc 2, D Rd 3, E Re 4, F Rf 5, G Rg 6, H Rh 7);
}
