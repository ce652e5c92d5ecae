//! Fetches of a step, by handle: each says what its tensor becomes.

use thalweg_tensor::{Context, Result, Tensor, err};

use crate::dtype::TensorType;
use crate::output::{Output, Raw};
use crate::value::FromTensor;
use crate::variable::Variable;

/// Handles to fetch that become an `R`: one handle, a tuple, an array, a slice or a vector of them,
/// or `()` for nothing.
pub trait Fetch<R>: Fetches {
    /// The value that the tensors, in that order, become.
    #[doc(hidden)]
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R>;
}

impl<T: TensorType, R: FromTensor<T>> Fetch<R> for Output<T> {
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R> {
        let tensor = tensors.next().ok_or_else(|| err!(Internal, "a fetch has no tensor"))?;
        R::from_tensor(tensor).context(|| format!("fetch of '{}'", self.name().unwrap_or_default()))
    }
}

impl<T: TensorType, R: FromTensor<T>> Fetch<R> for Variable<T> {
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R> {
        Fetch::<R>::value(Variable::value(self), tensors)
    }
}

impl<R, F: Fetch<R> + ?Sized> Fetch<R> for &F {
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<R> {
        (**self).value(tensors)
    }
}

impl<R, F: Fetch<R>> Fetch<Vec<R>> for [F] {
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<Vec<R>> {
        self.iter().map(|fetch| fetch.value(tensors)).collect()
    }
}

impl<R, F: Fetch<R>> Fetch<Vec<R>> for Vec<F> {
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<Vec<R>> {
        self[..].value(tensors)
    }
}

impl<R, F: Fetch<R>, const COUNT: usize> Fetch<[R; COUNT]> for [F; COUNT] {
    fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<[R; COUNT]> {
        let values: Vec<R> = self[..].value(tensors)?;
        values.try_into().map_err(|_| err!(Internal, "as many values as fetches"))
    }
}

impl Fetch<()> for () {
    fn value(&self, _: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
        Ok(())
    }
}

/// Handles to fetch, whatever becomes of their tensors.
pub trait Fetches {
    /// The handles as a prepared step keeps them.
    #[doc(hidden)]
    type Owned: Send + Sync + 'static;

    #[doc(hidden)]
    fn to_owned_handles(&self) -> Self::Owned;

    /// Calls `visit` with each handle, in order.
    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&Raw));
}

impl<T: TensorType> Fetches for Output<T> {
    type Owned = Output<T>;

    fn to_owned_handles(&self) -> Output<T> {
        self.clone()
    }

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.raw());
    }
}

impl<T: TensorType> Fetches for Variable<T> {
    type Owned = Output<T>;

    fn to_owned_handles(&self) -> Output<T> {
        Variable::value(self).clone()
    }

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(Variable::value(self).raw());
    }
}

impl<F: Fetches + ?Sized> Fetches for &F {
    type Owned = F::Owned;

    fn to_owned_handles(&self) -> F::Owned {
        (**self).to_owned_handles()
    }

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        (**self).visit(visit);
    }
}

impl<F: Fetches> Fetches for [F] {
    type Owned = Vec<F::Owned>;

    fn to_owned_handles(&self) -> Vec<F::Owned> {
        self.iter().map(F::to_owned_handles).collect()
    }

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self.iter().for_each(|fetch| fetch.visit(visit));
    }
}

impl<F: Fetches> Fetches for Vec<F> {
    type Owned = Vec<F::Owned>;

    fn to_owned_handles(&self) -> Vec<F::Owned> {
        self[..].to_owned_handles()
    }

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self[..].visit(visit);
    }
}

impl<F: Fetches, const COUNT: usize> Fetches for [F; COUNT] {
    type Owned = [F::Owned; COUNT];

    fn to_owned_handles(&self) -> [F::Owned; COUNT] {
        self.each_ref().map(F::to_owned_handles)
    }

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self[..].visit(visit);
    }
}

impl Fetches for () {
    type Owned = ();

    fn to_owned_handles(&self) {}

    fn visit(&self, _: &mut dyn FnMut(&Raw)) {}
}

macro_rules! tuple {
    ($($f:ident $r:ident $i:tt),+) => {
        impl<$($f: Fetches),+> Fetches for ($($f,)+) {
            type Owned = ($($f::Owned,)+);

            fn to_owned_handles(&self) -> Self::Owned {
                ($(self.$i.to_owned_handles(),)+)
            }

            fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
                $(self.$i.visit(visit);)+
            }
        }

        impl<$($r, $f: Fetch<$r>),+> Fetch<($($r,)+)> for ($($f,)+) {
            fn value(&self, tensors: &mut dyn Iterator<Item = Tensor>) -> Result<($($r,)+)> {
                Ok(($(self.$i.value(tensors)?,)+))
            }
        }
    };
}

for_tuples!(tuple);
