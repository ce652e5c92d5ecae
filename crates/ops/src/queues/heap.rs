//! A binary heap with TensorFlow's order of equal elements.

/// A min-heap by key. The order of equal keys depends on the heap's algorithm and is visible to
/// clients that record their batches: as in C++ standard libraries, `pop` sifts down to a leaf,
/// then up.
pub(crate) struct Heap<T> {
    items: Vec<(i64, T)>,
}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap { items: Vec::new() }
    }
}

impl<T> Heap<T> {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn push(&mut self, key: i64, item: T) {
        self.items.push((key, item));
        self.sift_up(self.items.len() - 1);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.items.pop()?;
        let Some(first) = self.items.first_mut() else { return Some(last.1) };
        let top = std::mem::replace(first, last);
        let len = self.items.len();
        let mut hole = 0;
        while 2 * hole + 2 < len {
            let (left, right) = (2 * hole + 1, 2 * hole + 2);
            // The right child unless the left one is smaller.
            let child = if self.items[right].0 > self.items[left].0 { left } else { right };
            self.items.swap(hole, child);
            hole = child;
        }
        if 2 * hole + 1 < len {
            self.items.swap(hole, 2 * hole + 1);
            hole = 2 * hole + 1;
        }
        self.sift_up(hole);
        Some(top.1)
    }

    fn sift_up(&mut self, mut hole: usize) {
        while hole > 0 {
            let parent = (hole - 1) / 2;
            if self.items[parent].0 <= self.items[hole].0 {
                break;
            }
            self.items.swap(parent, hole);
            hole = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(keys: &[i64]) -> Vec<usize> {
        let mut heap = Heap::default();
        for (i, &key) in keys.iter().enumerate() {
            heap.push(key, i);
        }
        std::iter::from_fn(|| heap.pop()).collect()
    }

    #[test]
    fn equals_leave_in_tensorflows_order() {
        assert_eq!(order(&[1; 9]), [0, 2, 6, 8, 5, 7, 4, 1, 3]);
        let keys = [2, 1, 2, 1, 3, 1, 2, 3, 1, 1, 2, 2];
        assert_eq!(order(&keys), [1, 5, 3, 9, 8, 6, 11, 2, 10, 0, 4, 7]);
        assert_eq!(order(&[i64::MAX, i64::MIN, 0]), [1, 2, 0]);
        assert_eq!(order(&[]), [0; 0]);
    }
}
