//! Which files of nginx's suite count: those whose configuration uses only what is built. Grows with the program.

use serde_json::Value;

/// Directives that the program obeys, apart from those in the suite's own boilerplate (`pid`, `listen`, `*_temp_path` …).
const BUILT: &[&str] = &[
    "absolute_redirect",
    "access_log",
    "add_header",
    "add_trailer",
    "aio",
    "alias",
    "allow",
    "autoindex",
    "autoindex_exact_size",
    "autoindex_format",
    "autoindex_localtime",
    "chunked_transfer_encoding",
    "client_body_timeout",
    "client_header_buffer_size",
    "client_header_timeout",
    "client_max_body_size",
    "connection_pool_size",
    "default_type",
    "deny",
    "directio",
    "disable_symlinks",
    "error_page",
    "etag",
    "expires",
    "gzip_static",
    "if_modified_since",
    "ignore_invalid_headers",
    "include",
    "index",
    "internal",
    "keepalive_disable",
    "keepalive_requests",
    "keepalive_time",
    "keepalive_timeout",
    "large_client_header_buffers",
    "limit_rate",
    "limit_rate_after",
    "lingering_close",
    "lingering_time",
    "lingering_timeout",
    "log_format",
    "log_not_found",
    "map",
    "map_hash_bucket_size",
    "map_hash_max_size",
    "max_headers",
    "max_ranges",
    "merge_slashes",
    "open_file_cache",
    "open_file_cache_errors",
    "open_file_cache_min_uses",
    "open_file_cache_valid",
    "open_log_file_cache",
    "output_buffers",
    "port_in_redirect",
    "postpone_output",
    "read_ahead",
    "recursive_error_pages",
    "reset_timedout_connection",
    "return",
    "root",
    "send_timeout",
    "sendfile",
    "sendfile_max_chunk",
    "server_name_in_redirect",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "server_tokens",
    "split_clients",
    "tcp_nodelay",
    "tcp_nopush",
    "thread_pool",
    "try_files",
    "types",
    "underscores_in_headers",
    "worker_processes",
];

/// The T1 files of `needs.json` that use nothing but [`BUILT`], in order of name.
pub fn files(needs: &Value) -> Result<Vec<String>, String> {
    let files = needs.as_object().ok_or("needs.json is not an object")?;
    let inside = |file: &&String| {
        let file = &files[file.as_str()];
        let directives = file["directives"].as_array().into_iter().flatten();
        file["tier"] == "T1"
            && directives
                .filter_map(Value::as_str)
                .all(|name| BUILT.contains(&name))
    };
    Ok(files.keys().filter(inside).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_when_all_its_directives_are_built() {
        let needs = serde_json::json!({
            "a.t": {"tier": "T1", "directives": ["root", "index"]},
            "b.t": {"tier": "T1", "directives": ["root", "proxy_pass"]},
            "c.t": {"tier": "T2", "directives": ["root"]},
        });
        assert_eq!(files(&needs).unwrap(), ["a.t"]);
    }

    #[test]
    fn the_names_are_sorted_and_unique() {
        assert!(BUILT.is_sorted_by(|a, b| a < b));
    }
}
