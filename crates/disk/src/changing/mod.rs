//! Everything that changes the disk: always a job in a pool's write lane.

pub(crate) mod batch;
pub(crate) mod device;
pub(crate) mod group_commit;
pub(crate) mod move_file;
pub(crate) mod relation;
pub(crate) mod replace;
pub(crate) mod reuse_inode;
pub(crate) mod segment_file;
pub(crate) mod socket;
mod steps;
pub(crate) mod temporary;
pub(crate) mod tree;
pub(crate) mod write;
