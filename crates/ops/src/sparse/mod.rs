//! Sparse tensors in coordinate form, sets, and ragged rows.
