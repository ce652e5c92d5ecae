//! The only macro of the crate; it enumerates types and contains no control flow.

/// A CPU kernel for a list of element types.
///
/// `cpu_kernel!("Softplus", "T" in [f32, f64] => softplus)` expands to
/// ```text
/// KernelSpec {
///     op: "Softplus",
///     constraints: &[("T", &[DType::Float, DType::Double])],
///     create: |init| match init.attrs().dtype("T")? {
///         DType::Float => softplus::<f32>(init),
///         DType::Double => softplus::<f64>(init),
///         other => Err(..),
///     },
///     ..KernelSpec::CPU
/// }
/// ```
/// Fields after a semicolon are taken over: `cpu_kernel!(.. => softplus; is_cheap: true)`. A type
/// after the function is its first argument: `=> unary::<Exp>` calls `unary::<Exp, f32>(init)`.
macro_rules! cpu_kernel {
    ($op:literal, $attr:literal in [$($t:ty),+ $(,)?] => $create:ident $(::<$first:ty>)? $(; $($field:ident: $value:expr),+)?) => {
        cpu_kernel!(@spec $op, $attr, [$($t),+], $create, ($($first)?), {$($($field: $value,)+)?})
    };
    (@spec $op:literal, $attr:literal, [$($t:ty),+], $create:ident, $first:tt, {$($field:ident: $value:expr,)*}) => {
        thalweg_kernel::KernelSpec {
            op: $op,
            constraints: &[($attr, &[$(<$t as thalweg_tensor::Element>::DTYPE),+])],
            create: |init| match init.attrs().dtype($attr)? {
                $(<$t as thalweg_tensor::Element>::DTYPE => cpu_kernel!(@create $create, $first, $t)(init),)+
                other => Err(thalweg_tensor::err!(Unimplemented, "{} has no kernel for {other}", $op)),
            },
            $($field: $value,)*
            ..thalweg_kernel::KernelSpec::CPU
        }
    };
    (@create $create:ident, (), $t:ty) => { $create::<$t> };
    (@create $create:ident, ($first:ty), $t:ty) => { $create::<$first, $t> };
}
