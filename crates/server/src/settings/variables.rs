//! The lists of what makes variables: the tables of all modules, and the blocks that define a variable.
//!
//! To add a module's variables, add its table.

use crate::after::compression::{brotli, gzip, zstd};
use crate::after::{slice, ssi, userid};
use crate::before::{auth_basic, limit_conn, limit_req, real_ip};
use crate::caching::cache_state;
use crate::content::module::Modules;
use crate::content::proxy::{gateways, variables as proxy};
use crate::content::status;
use crate::variables::block::VariableBlock;
use crate::variables::table::{VariableEntry, VariableTables};
use crate::variables::{
    browser, connection, environment, referer, request, response, secure_link, tls,
};
use crate::{geo, map, path, split_clients};

const TABLES: &[&[VariableEntry]] = &[
    request::VARIABLES,
    response::VARIABLES,
    connection::VARIABLES,
    environment::VARIABLES,
    tls::VARIABLES,
    path::VARIABLES,
    real_ip::VARIABLES,
    limit_req::VARIABLES,
    limit_conn::VARIABLES,
    auth_basic::VARIABLES,
    proxy::VARIABLES,
    gateways::VARIABLES,
    cache_state::VARIABLES,
    slice::VARIABLES,
    ssi::VARIABLES,
    gzip::VARIABLES,
    brotli::VARIABLES,
    zstd::VARIABLES,
    userid::VARIABLES,
    browser::VARIABLES,
    referer::VARIABLES,
    secure_link::VARIABLES,
    status::VARIABLES,
];

const BLOCKS: &[VariableBlock] = &[map::BLOCK, geo::BLOCK, split_clients::BLOCK];

/// The blocks that define a variable.
pub fn blocks(modules: Modules) -> impl Iterator<Item = &'static VariableBlock> {
    let outside = modules.iter().flat_map(|module| module.variable_blocks());
    BLOCKS.iter().chain(outside)
}

/// The built-in variables, and those of modules from outside.
#[must_use]
pub fn all(modules: Modules) -> VariableTables {
    let outside = modules.iter().map(|module| module.variables());
    VariableTables::new(TABLES.iter().copied().chain(outside).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once() {
        let tables = all(&[]);
        let mut names: Vec<_> = tables.all().map(|entry| entry.name).collect();
        let before = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
