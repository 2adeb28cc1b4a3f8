//! How this process keeps its memory.
//!
//! In: nothing. Out: an allocator that does not give freed memory back to the system. A training step frees and asks for the
//! same hundreds of megabytes again and again; given back, every page of them would be cleared and mapped anew in every step.

/// Keeps freed memory in this process (unless `MALLOC_TRIM_THRESHOLD_` or `MALLOC_MMAP_THRESHOLD_` in the environment say what
/// malloc does), and asks for large pages for big tensors (unless `THP_MEM_ALLOC_ENABLE` is 0). For programs that train, as the first thing they do; where the program was built without the bridge, or
/// the C library is not glibc, it does nothing.
pub fn keep() {
    #[cfg(fused)]
    crate::fused::keep_memory();
}
