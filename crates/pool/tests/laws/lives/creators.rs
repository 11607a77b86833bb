//! Many who create sessions at once where there are few slots.
