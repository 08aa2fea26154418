//! A response, whatever made it.

/// A response whose file chunks are files of the disk layer.
pub type Response = message::Response<std::rc::Rc<disk::OpenFile>>;
