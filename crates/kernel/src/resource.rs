//! The resource manager: state that outlives steps, by container and name.

use std::any::{Any, TypeId};
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_tensor::{Resource, ResourceHandle, Result, bail, err};

use crate::StepId;

/// Observes every change of named state, for logs and replication.
pub trait StateObserver: Send + Sync {
    /// Called before `update` (an op's name) changes `resource` in step `step_id`. An error prevents
    /// the change.
    fn before_update(&self, resource: &dyn Resource, update: &str, step_id: StepId) -> Result<()> {
        let _ = (resource, update, step_id);
        Ok(())
    }

    /// Called after the change. Other steps may have changed `resource` meanwhile; each change is
    /// followed by its own call, so the last call sees all of them.
    fn after_update(&self, resource: &dyn Resource, update: &str, step_id: StepId) {
        let _ = (resource, update, step_id);
    }

    /// Called after a resource was removed: destroyed, or its container reset.
    fn removed(&self, container: &str, name: &str, resource: &dyn Resource) {
        let _ = (container, name, resource);
    }
}

type Key = (Arc<str>, Arc<str>, TypeId);

/// Named state of one task.
pub struct ResourceManager {
    default_container: Arc<str>,
    resources: Mutex<FxHashMap<Key, Arc<dyn Resource>>>,
    observer: Option<Arc<dyn StateObserver>>,
}

impl ResourceManager {
    /// An empty manager. TensorFlow names the default container after the task's job.
    pub fn new(default_container: &str) -> Arc<ResourceManager> {
        Self::with_observer(default_container, None)
    }

    /// An empty manager whose changes `observer` sees.
    pub fn with_observer(
        default_container: &str,
        observer: Option<Arc<dyn StateObserver>>,
    ) -> Arc<ResourceManager> {
        Arc::new(ResourceManager {
            default_container: default_container.into(),
            resources: Mutex::default(),
            observer,
        })
    }

    /// Whether something observes changes.
    pub fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Whether there is no state.
    pub fn is_empty(&self) -> bool {
        self.resources.lock().is_empty()
    }

    /// All there is, in no order.
    pub fn all(&self) -> Vec<Arc<dyn Resource>> {
        self.resources.lock().values().cloned().collect()
    }

    /// All there is with names, in the order of containers and names.
    pub fn all_named(&self) -> Vec<(Arc<str>, Arc<dyn Resource>)> {
        let mut found: Vec<_> = self.resources.lock().clone().into_iter().collect();
        found.sort_by(|((a_container, a, _), left), ((b_container, b, _), right)| {
            (a_container, a, left.kind()).cmp(&(b_container, b, right.kind()))
        });
        found.into_iter().map(|((_, name, _), resource)| (name, resource)).collect()
    }

    /// All of one type, with their containers and names, in the order of these.
    pub fn all_of<T: Resource>(&self) -> Vec<(Arc<str>, Arc<str>, Arc<T>)> {
        let resources = self.resources.lock();
        let of_type = resources.iter().filter(|((_, _, key), _)| *key == TypeId::of::<T>());
        let named = |((container, name, _), resource): (&Key, &Arc<dyn Resource>)| {
            Some((container.clone(), name.clone(), downcast(resource.clone())?))
        };
        let mut found: Vec<_> = of_type.filter_map(named).collect();
        drop(resources);
        found.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        found
    }

    /// The container that an empty name stands for.
    pub fn default_container(&self) -> &Arc<str> {
        &self.default_container
    }

    /// A key costs no allocation if both names are given as `Arc<str>`.
    fn key<T: Resource>(&self, container: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Key {
        let mut container = container.into();
        if container.is_empty() {
            container = self.default_container.clone();
        }
        (container, name.into(), TypeId::of::<T>())
    }

    /// The resource of this type and name.
    pub fn find<T: Resource>(
        &self,
        container: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Option<Arc<T>> {
        let found = self.resources.lock().get(&self.key::<T>(container, name))?.clone();
        downcast(found)
    }

    /// The resource of a handle: the one it owns, or the one of its container and name.
    pub fn resolve<T: Resource>(&self, handle: &ResourceHandle) -> Result<Arc<T>> {
        if let Some(owned) = &handle.owned {
            return downcast(owned.clone()).ok_or_else(|| {
                err!(InvalidArgument, "resource {} is a {}", handle.name, owned.kind())
            });
        }
        self.find(handle.container.clone(), handle.name.clone()).ok_or_else(|| {
            match self.kind_of(handle) {
                Some(kind) => err!(InvalidArgument, "resource {} is a {kind}", handle.name),
                None => {
                    err!(NotFound, "Resource {}/{} does not exist.", handle.container, handle.name)
                }
            }
        })
    }

    /// The kind of the resource that has the handle's container and name.
    fn kind_of(&self, handle: &ResourceHandle) -> Option<&'static str> {
        let resources = self.resources.lock();
        let mut named = resources.iter().filter(|((container, name, _), resource)| {
            resource.has_handle() && *container == handle.container && *name == handle.name
        });
        named.next().map(|(_, resource)| resource.kind())
    }

    /// The resource of this type and name, made by `create` if there is none.
    pub fn find_or_create<T: Resource>(
        &self,
        container: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        create: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let key = self.key::<T>(container, name);
        let mut resources = self.resources.lock();
        if let Some(found) = resources.get(&key) {
            return downcast(found.clone())
                .ok_or_else(|| err!(Internal, "resource {} has another type than its key", key.1));
        }
        let created = Arc::new(create()?);
        resources.insert(key, created.clone());
        Ok(created)
    }

    /// Removes a resource; other owners keep it alive.
    pub fn remove<T: Resource>(&self, container: &str, name: &str) -> Result<()> {
        let removed = self.resources.lock().remove_entry(&self.key::<T>(container, name));
        match removed {
            Some(entry) => {
                self.notify_removed(&[entry]);
                Ok(())
            }
            None => bail!(NotFound, "Resource {container}/{name} does not exist."),
        }
    }

    /// Removes the resource of a handle, of any type; other owners keep it alive.
    pub fn remove_handle(&self, handle: &ResourceHandle) -> Result<()> {
        let mut resources = self.resources.lock();
        let gone: Vec<_> = resources
            .extract_if(|(container, name, _), resource| {
                resource.has_handle() && *container == handle.container && *name == handle.name
            })
            .collect();
        drop(resources);
        self.notify_removed(&gone);
        if gone.is_empty() && handle.owned.is_none() {
            bail!(NotFound, "Resource {}/{} does not exist.", handle.container, handle.name);
        }
        Ok(())
    }

    /// Removes everything in a container.
    pub fn reset(&self, container: &str) {
        let name = if container.is_empty() { &*self.default_container } else { container };
        let mut resources = self.resources.lock();
        let gone: Vec<_> = resources.extract_if(|(c, _, _), _| **c == *name).collect();
        drop(resources);
        self.notify_removed(&gone);
    }

    fn notify_removed(&self, gone: &[(Key, Arc<dyn Resource>)]) {
        let Some(observer) = &self.observer else { return };
        // Hash order must not reach a log.
        let mut sorted: Vec<_> = gone.iter().collect();
        sorted.sort_by(|a, b| (&a.0.0, &a.0.1).cmp(&(&b.0.0, &b.0.1)));
        for ((container, name, _), resource) in sorted {
            observer.removed(container, name, &**resource);
        }
    }

    /// Removes all resources: of step resources, at the end of the step.
    pub fn clear(&self) {
        let mut resources = self.resources.lock();
        if !resources.is_empty() {
            let gone = std::mem::take(&mut *resources);
            drop(resources);
            // Resources may take long to drop, or reach for this manager: not under its lock.
            drop(gone);
        }
    }

    /// Changes named state; all changes pass through here, so that the observer sees them.
    pub fn update<R>(
        &self,
        resource: &dyn Resource,
        update: &str,
        step_id: StepId,
        change: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        if let Some(observer) = &self.observer {
            observer.before_update(resource, update, step_id)?;
            let result = change();
            // What failed may have changed a part all the same.
            observer.after_update(resource, update, step_id);
            return result;
        }
        change()
    }
}

fn downcast<T: Resource>(resource: Arc<dyn Resource>) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = resource;
    any.downcast().ok()
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use std::sync::Weak;

    /// Looks into its manager when it goes, as a queue that owns other state might.
    struct LooksUpOnDrop(Weak<ResourceManager>);

    impl Resource for LooksUpOnDrop {
        fn kind(&self) -> &'static str {
            "LooksUpOnDrop"
        }
    }

    impl Drop for LooksUpOnDrop {
        fn drop(&mut self) {
            if let Some(manager) = self.0.upgrade() {
                assert!(manager.find::<LooksUpOnDrop>("", "another").is_none());
            }
        }
    }

    #[test]
    fn resources_go_without_the_lock() {
        let manager = ResourceManager::new("local");
        let make = |container: &str, name: &str| {
            let make_resource = || Ok(LooksUpOnDrop(Arc::downgrade(&manager)));
            manager.find_or_create(container, name, make_resource).unwrap()
        };
        drop(make("", "a"));
        manager.remove::<LooksUpOnDrop>("local", "a").unwrap();
        let e = manager.remove::<LooksUpOnDrop>("local", "a").unwrap_err();
        assert_eq!(e.code(), Code::NotFound);
        drop((make("", "b"), make("other", "c")));
        manager.reset("");
        assert!(manager.find::<LooksUpOnDrop>("", "b").is_none());
        assert!(manager.find::<LooksUpOnDrop>("other", "c").is_some());
        manager.clear();
        assert!(manager.find::<LooksUpOnDrop>("other", "c").is_none());
        drop(make("", "d"));
    }
}
