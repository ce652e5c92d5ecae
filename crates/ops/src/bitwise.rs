//! Placeholder for the family.

use thalweg_kernel::Family;

pub(crate) static FAMILY: Family = Family { ops: &[], kernels: &[] };
