//! What a server of any protocol runs on.
//!
//! * [`listen`]: the directive, the table of addresses, and the sockets.
//! * [`cpu_pool`]: threads for work that needs the processor and no disk.
//! * [`direct_mapped`]: a small cache of one loop.
//!
//! Not here: any protocol, and any configuration but `listen`.

pub mod cpu_pool;
pub mod direct_mapped;
pub mod listen;
