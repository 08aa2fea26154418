//! Request methods, and sets of them.

macro_rules! methods {
    ($($id:ident $name:literal)*) => {
        /// A request method that nginx knows by name; all others are `Other` and keep their text in the head.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            /// Any other method made of upper case letters, `_` and `-`.
            Other,
            $(#[doc = concat!("`", $name, "`")] $id,)*
        }

        impl Method {
            /// The method with this name; names are case-sensitive.
            pub fn find(name: &[u8]) -> Method {
                $(if name == $name.as_bytes() { return Method::$id; })*
                Method::Other
            }

            /// Its text; empty for `Other`.
            pub fn name(self) -> &'static str {
                match self { Method::Other => "", $(Method::$id => $name,)* }
            }
        }
    };
}

methods! {
    Get "GET" Head "HEAD" Post "POST" Put "PUT" Delete "DELETE" Options "OPTIONS" Patch "PATCH" Connect "CONNECT" Trace "TRACE"
    Mkcol "MKCOL" Copy "COPY" Move "MOVE" Propfind "PROPFIND" Proppatch "PROPPATCH" Lock "LOCK" Unlock "UNLOCK"
}

/// A set of methods (`limit_except`, `proxy_cache_methods`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods(u32);

impl Methods {
    /// The empty set.
    pub const EMPTY: Methods = Methods(0);

    /// The set with `method` in it.
    pub const fn with(self, method: Method) -> Methods {
        Methods(self.0 | 1 << method as u8)
    }

    /// Is `method` in it?
    pub const fn contains(self, method: Method) -> bool {
        self.0 & 1 << method as u8 != 0
    }
}
