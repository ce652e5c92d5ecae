//! Views of matrices in slices, checked once at construction.

/// A matrix to read: element `(i, j)` is `data[i * row_stride + j * col_stride]`.
///
/// Exchanging the strides transposes a matrix without a copy; a stride of 0 repeats elements.
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, T> MatRef<'a, T> {
    /// The view, or `None` if an element would lie outside `data`.
    pub fn new(
        data: &'a [T],
        (rows, cols): (usize, usize),
        (row_stride, col_stride): (usize, usize),
    ) -> Option<Self> {
        let len = extent((rows, cols), (row_stride, col_stride))?;
        (len <= data.len()).then_some(Self { data, rows, cols, row_stride, col_stride })
    }

    /// A matrix without elements.
    pub fn empty() -> Self {
        Self { data: &[], rows: 0, cols: 0, row_stride: 1, col_stride: 1 }
    }

    /// The view of a whole row-major matrix, or `None` if `data` is too short.
    pub fn row_major(data: &'a [T], rows: usize, cols: usize) -> Option<Self> {
        Self::new(data, (rows, cols), (cols, 1))
    }

    /// The same elements with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Distance between rows, in elements.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Distance between columns, in elements.
    pub fn col_stride(&self) -> usize {
        self.col_stride
    }

    /// Address of element `(0, 0)`; every `(i, j)` inside the matrix is in bounds of the data.
    pub fn as_ptr(&self) -> *const T {
        self.data.as_ptr()
    }
}

/// A matrix to write: rows are contiguous and do not overlap.
#[derive(Debug)]
pub struct MatMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

impl<'a, T> MatMut<'a, T> {
    /// The view, or `None` if rows would overlap or an element would lie outside `data`.
    pub fn new(data: &'a mut [T], (rows, cols): (usize, usize), row_stride: usize) -> Option<Self> {
        let len = extent((rows, cols), (row_stride, 1))?;
        let disjoint = rows <= 1 || row_stride >= cols;
        (disjoint && len <= data.len()).then_some(Self { data, rows, cols, row_stride })
    }

    /// The view of a whole row-major matrix, or `None` if `data` is too short.
    pub fn row_major(data: &'a mut [T], rows: usize, cols: usize) -> Option<Self> {
        Self::new(data, (rows, cols), cols)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Distance between rows, in elements.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Sets every element to `x`.
    pub(super) fn fill(&mut self, x: T)
    where
        T: Copy,
    {
        if self.cols > 0 {
            for row in 0..self.rows {
                let start = row * self.row_stride;
                self.data[start..start + self.cols].fill(x);
            }
        }
    }

    /// Address of element `(0, 0)`; every `(i, j)` inside the matrix is in bounds of the data.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        self.data.as_mut_ptr()
    }
}

/// Elements that a slice must have to hold the matrix; `None` if that overflows.
fn extent((rows, cols): (usize, usize), (row_stride, col_stride): (usize, usize)) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(0);
    }
    let last_row = (rows - 1).checked_mul(row_stride)?;
    let last_col = (cols - 1).checked_mul(col_stride)?;
    last_row.checked_add(last_col)?.checked_add(1)
}
