//! Save and restore ops.
//!
//! All of them block on files, so they run on the threads for blocking calls, and other nodes run
//! meanwhile. `SaveV2` and `RestoreV2` use V2 checkpoints (index and data files), the others V1
//! checkpoints (a single file).

mod merge;
mod old;
mod restore;
mod save;
mod slices;

use std::sync::Arc;

use thalweg_formats::Storage;
use thalweg_formats::storage::folder_of;
use thalweg_kernel::{AnyKernel, AsyncCall, AsyncKernel, Family, KernelSpec, Outputs};
use thalweg_tensor::{Bytes, Result, Tensor, bail, ensure};

use crate::files::path_of;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        save::SAVE_V2.without_gradient(),
        old::SAVE.without_gradient(),
        old::SAVE_SLICES.without_gradient(),
        restore::RESTORE_V2.without_gradient(),
        old::RESTORE.without_gradient(),
        old::RESTORE_SLICE.without_gradient(),
        merge::MERGE_V2_CHECKPOINTS.without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "SaveV2", create: save::save_v2, ..KernelSpec::CPU },
        KernelSpec { op: "Save", create: old::save, ..KernelSpec::CPU },
        KernelSpec { op: "SaveSlices", create: old::save_slices, ..KernelSpec::CPU },
        KernelSpec { op: "Restore", create: old::restore, ..KernelSpec::CPU },
        KernelSpec { op: "RestoreSlice", create: old::restore_slice, ..KernelSpec::CPU },
        KernelSpec { op: "RestoreV2", create: restore::restore_v2, ..KernelSpec::CPU },
        KernelSpec { op: "MergeV2Checkpoints", create: merge::create, ..KernelSpec::CPU },
    ],
};

/// A kernel that runs on a thread for blocking file access.
struct OnFiles<F>(Arc<F>);

impl<F> AsyncKernel for OnFiles<F>
where
    F: Fn(&AsyncCall) -> Result<Outputs> + Send + Sync + 'static,
{
    fn start(&self, call: AsyncCall) {
        let work = self.0.clone();
        let background = call.step.background().clone();
        background.spawn_blocking(Box::new(move || {
            let result = call.step.cancellation().check().and_then(|()| work(&call));
            finish(call, result);
        }));
    }
}

/// Such a kernel that calls `work`.
fn on_files<F>(work: F) -> Result<AnyKernel>
where
    F: Fn(&AsyncCall) -> Result<Outputs> + Send + Sync + 'static,
{
    Ok(AnyKernel::Async(Arc::new(OnFiles(Arc::new(work)))))
}

/// Completes a call on the pool: nodes that follow must not run on the thread for blocking calls.
fn finish(call: AsyncCall, result: Result<Outputs>) {
    let background = call.step.background().clone();
    background.spawn(Box::new(move || call.complete(result)));
}

/// The only string of a tensor of any rank, as a path.
fn only_path<'a>(tensor: &'a Tensor, name: &str) -> Result<&'a str> {
    let strings = tensor.strings()?;
    ensure!(
        strings.len() == 1,
        InvalidArgument,
        "Input {name} should have a single element, got {} instead.",
        strings.len()
    );
    path_of(&strings[0])
}

/// A tensor's name as text.
fn name_of(name: &Bytes) -> Result<&str> {
    let Ok(text) = std::str::from_utf8(name) else {
        bail!(InvalidArgument, "the tensor name {name:?} is not UTF-8");
    };
    ensure!(!text.is_empty(), InvalidArgument, "a tensor in a checkpoint must have a name");
    Ok(text)
}

/// Fails if more than the last folder of a path would have to be created, as in TensorFlow. Object
/// stores have no folders, so their paths pass.
fn check_folder(storage: &dyn Storage, path: &str) -> Result<()> {
    let folder = folder_of(path);
    let above = folder_of(folder);
    if path.contains("://") || above.is_empty() || storage.exists(folder)? {
        return Ok(());
    }
    ensure!(storage.exists(above)?, NotFound, "{folder}; No such file or directory");
    Ok(())
}
