//! The allocator's arena of a loop's thread, grown before the loop runs.
//!
//! glibc's malloc grows a thread's arena by mprotect(2). That changes the process's memory map, and waits for every
//! thread that reads the map: also for a pool's thread that has just mapped a file and then lost its processor (seen: a
//! loop waited 14 ms). An arena that was grown once stays grown.

/// Bytes that a loop's arena can hold without growing. A connection takes less than 2 KiB, and a response sent from a
/// buffer 64 KiB while that lasts. This is address space: no memory is taken for it.
const RESERVED: usize = 16 << 20;
/// Bytes of one piece: an allocation over 128 KiB gets a mapping of its own (M_MMAP_THRESHOLD).
const PIECE: usize = 64 << 10;

/// Grows this thread's arena.
pub(super) fn reserve() {
    let pieces: Vec<Vec<u8>> = (0..RESERVED / PIECE)
        .map(|_| Vec::with_capacity(PIECE))
        .collect();
    drop(std::hint::black_box(pieces));
}
