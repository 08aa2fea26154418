//! The differences of docs/differences.md by directive: the lines of a configuration that meet each of them.
//!
//! Not here: the texts, which are those of the page. Invariant: each bold sentence that begins a paragraph there has one row
//! here, in the same order; a test compares them.

use super::difference::{Row, rows};

rows! {
    /// One row for each paragraph. See [`Row`] for what the words mean.
    Every, "There is one worker process, whose event loops are threads.": "worker_processes" "worker_connections" "worker_rlimit_nofile";
    Every, "The worker gets its configuration from the master.":;
    Every, "Keep-alive connections outlive a reload:": "keepalive_timeout";
    Command, "USR1 also writes figures":;
    Every, "A worker whose master has died exits":;
    Every, "Root follows no link that another user may have made.": "error_log" "access_log" "pid";
    Every, "After USR1 logs belong to the user that opens them,": "error_log" "access_log";
    Command, "USR2 works in the foreground, too,":;
    Lines, "`use`, `accept_mutex`, `accept_mutex_delay`, `multi_accept`, `lock_file`, `timer_resolution`, \
        `debug_points`, `pcre_jit`":
        "use" "accept_mutex" "accept_mutex_delay" "multi_accept" "lock_file" "timer_resolution" "debug_points"
        "pcre_jit";
    Lines, "`load_module`": "load_module";
    Lines, "There is no debug log.": "error_log=debug";
    Lines, "A `worker_cpu_affinity` that the kernel refuses": "worker_cpu_affinity";
    Every, "The thread pool is the default.":;
    Lines, "Data in memory never goes through a pool.": "aio=threads";
    Every, "A full pool results in 503 with `Retry-After: 1`": "thread_pool";
    Every, "A request waits for a disk for 60 s at most":;
    Every, "A file system that was served can be unmounted once it is idle":;
    Every, "Reads and writes wait in two lanes.":;
    Lines, "`open_file_cache`": "open_file_cache";
    Lines, "`autoindex` and `random_index` stay below an `alias` that has no slash at its end.": "autoindex" "random_index";
    Lines, "WebDAV (`dav_methods`) never leaves its root, and never destroys what it should move.": "dav_methods";
    Lines, "A PUT without a body creates an empty file.": "dav_methods=PUT";
    Lines, "`mp4` serves parts within one chunk.": "mp4";
    Lines, "Compression never keeps a loop busy.": "gzip" "brotli" "zstd" "gunzip";
    Lines, "Compressed data is sent whenever the source has no more data at the moment": "gzip" "brotli" "zstd";
    Lines, "The compressed bytes differ":
        "gzip" "gzip_comp_level" "gzip_buffers" "gzip_hash" "gzip_no_buffer" "postpone_gzipping" "gunzip_buffers";
    Lines, "`brotli` and `zstd` are built in":
        "brotli" "brotli_static" "brotli_buffers" "zstd" "zstd_static" "zstd_buffers" "zstd_dict_file";
    Lines, "An error page does not keep the `Vary: Accept-Encoding`": "gzip_vary" "error_page";
    Every, "A loop never writes to a log.": "access_log" "error_log";
    Lines, "A log whose reader does not read holds up nothing.": "access_log=/dev/stdout" "error_log=/dev/stderr" "access_log=/dev/stderr" "error_log=stderr";
    Lines, "A failing syslog server is reported once per second,": "access_log=syslog:" "error_log=syslog:";
    Lines, "`disable_symlinks` does not apply to access logs with variables in their paths.": "disable_symlinks";
    Command, "`json` is a format of access logs":;
    Lines, "Passwords are checked in a pool,": "auth_basic_user_file";
    Every, "A header line without a colon gets 400.":;
    Every, "Tabs around a field's value are removed,":;
    Every, "Syntax that RFC 9112 requires a server to reject gets 400":;
    Lines, "`add_header Server` and `add_header Date` replace": "add_header=Server" "add_header=Date";
    Lines, "`100 Continue` is sent only when it helps:": "client_max_body_size";
    Lines, "A relative path in `if (-f …)`": "if=(-" "if=(!-";
    Lines, "A mirror delays nothing:": "mirror";
    Lines, "A `keepalive_timeout` with one argument is complete.": "keepalive_timeout";
    Every, "An HTTP/1.0 client does not wait": "lingering_timeout" "lingering_time" "lingering_close";
    Every, "Unfinished request heads and stalled bodies give up their connections, too.":
        "worker_connections" "client_header_timeout" "client_body_timeout";
    Every, "Trailers are limited:":;
    Lines, "If `disable_symlinks` rejects a directory in the path,": "disable_symlinks";
    Lines, "A 401 keeps its challenge": "satisfy=any";
    Lines, "`auth_request` passes several hidden challenges on in one line.": "auth_request";
    Lines, "`stub_status` counts a connection once:": "stub_status";
    Every, "`client_body_buffer_size` is 16k by default":;
    Lines, "Logs show what was done.":
        "$sent_http_connection" "$sent_http_keep_alive" "$request_completion" "$sent_http_location"
        "$request_uri@log_format" "$tcpinfo_";
    Lines, "`$content_length` of a chunked body that was not read": "$content_length";
    Lines, "A variable is found each time it is used.":
        "$remote_addr@set" "$remote_addr@if" "$request_body@set" "$request_body@if" "$request_body@map";
    Lines, "A request counts for `limit_conn` until it is answered.": "limit_conn";
    Lines, "`limit_rate` applies to the body,": "limit_rate";
    Lines, "Of two `if` that hold, the last one decides alone.": "if";
    Lines, "A prefix inside a location with a regular expression is chosen as any other.": "location=~";
    Lines, "An impossible `valid_referers none`,": "valid_referers" "secure_link" "secure_link_secret";
    Lines, "`$secure_link_expires` is set even if `$secure_link`": "$secure_link_expires" "$uid_";
    Lines, "`flv` with `start` and several ranges": "flv" "dav_methods=COPY";
    Lines, "A PROXY protocol header may arrive in pieces,": "listen=proxy_protocol";
    Lines, "`geo` parses its text each time.": "geo";
    Lines, "Text replacement does not depend on where pieces end.": "sub_filter" "charset_map" "ssi" "slice";
    Lines, "The value of a page included by `include … set`": "ssi";
    Lines, "An error page for 416 does not have the `ETag` of the requested file.": "error_page=416";
    Lines, "A 416 has the header fields of its own status,": "add_header" "expires";
    Lines, "`try_files … =200` responds with an empty 200.": "try_files==2";
    Lines, "An `if` without content after one with content": "if";
    Lines, "`modern_browser` at level `http` applies below it.": "modern_browser" "ancient_browser";
    Every, "A chunk's size line consists of a size and extensions":;
    Every, "A small file that shrinks while it is read results in 500:":;
    Every, "Empty lines before a request":;
    Every, "`Server` and the built-in pages say freewheel.": "server_tokens=";
    Command, "`-V` and `-v` name freewheel first":;
    Lines, "A reload ends no connection of HTTP/2": "http2" "listen=http2";
    Lines, "A connection of HTTP/2 ends in two steps":
        "http2" "listen=http2" "keepalive_requests";
    Lines, "A stream that is answered before its request has ended": "http2" "listen=http2";
    Lines, "Connections of HTTP/2 have limits:":
        "http2" "listen=http2" "http2_max_concurrent_streams" "http2_recv_buffer_size" "http2_chunk_size"
        "http2_body_preread_size";
    Lines, "Over HTTP/2 `merge_slashes` is that of the server of `:authority`.": "merge_slashes=";
    Lines, "Floods over HTTP/2 end a connection.": "http2" "listen=http2";
    Lines, "CONNECT and WebSocket work over HTTP/2, too.": "http2" "listen=http2" "tunnel_pass";
    Lines, "Requests to servers over HTTP/2 share connections": "grpc_pass" "proxy_http_version=2";
    Lines, "A malformed response over HTTP/2 gets 502;": "grpc_pass" "proxy_http_version=2";
    Lines, "Certificates by ACME": "acme_issuer" "acme_certificate" "acme_shared_zone";
    Command, "Error messages say more.":;
    Lines, "Four checks are stricter.": "thread_pool" "split_clients";
    Command, "If there are several errors, another one may be reported.":;
    Lines, "The values in a text are found from left to right:": "map";
    Every, "Blocks nest at most 100 deep, and includes at most 64.":;
    Lines, "`user` without a group": "user";
    Command, "`-q` suppresses warnings too,":;
    Command, "Some directives are accepted and do nothing.":;
    Command, "Some are refused for good:":;
    Command, "`include_template` is our own:":;
    Every, "Memory has a budget":;
    Command, "`nginx:` precedes messages that nginx has, too; messages that only this program has (a \
        directive that is not built, one without effect) begin with `freewheel:`.":;
    Lines, "`more_set_headers` and its siblings":
        "more_set_headers" "more_clear_headers" "more_set_input_headers" "more_clear_input_headers";
    Lines, "TLS is 1.2 and 1.3,":
        "ssl_protocols" "ssl_ciphers" "ssl_dhparam" "ssl_ecdh_curve" "ssl_conf_command" "ssl_prefer_server_ciphers"
        "listen=ssl";
    Lines, "Names in handshakes are names of hosts.":
        "proxy_ssl_server_name" "grpc_ssl_server_name" "uwsgi_ssl_server_name" "listen=ssl";
    Lines, "Each server's own lines about TLS count,":
        "ssl_early_data" "ssl_ecdh_curve" "ssl_session_timeout" "ssl_session_cache" "ssl_session_ticket_key";
    Lines, "Keys and certificates are read by the master,": "ssl_certificate" "ssl_certificate_key";
    Lines, "Random keys for tickets outlive a reload,":
        "ssl_session_cache" "ssl_session_tickets" "ssl_session_ticket_key";
    Lines, "Name constraints of authorities also hold for a common name with a star":
        "ssl_verify_client" "proxy_ssl_verify" "grpc_ssl_verify" "uwsgi_ssl_verify";
    Lines, "Early data cannot be played again:": "ssl_early_data";
    Lines, "Records are small at first:": "ssl_certificate" "ssl_buffer_size";
    Lines, "Stapled responses are fetched before the first client asks,":
        "ssl_stapling" "ssl_stapling_verify" "ssl_stapling_responder";
    Lines, "The status of clients' certificates (`ssl_ocsp`) is asked for on a thread of its own,":
        "ssl_ocsp" "ssl_ocsp_responder" "ssl_ocsp_cache";
    Lines, "Fields named by `Connection`, and hop-by-hop fields, are not passed on":
        "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "grpc_pass";
    Lines, "The end of a request's body is always defined by what is sent.":
        "proxy_set_header=Content-Length" "proxy_set_header=Transfer-Encoding" "proxy_set_header=Expect"
        "proxy_pass_request_body=off" "fastcgi_pass_request_body=off" "uwsgi_pass_request_body=off"
        "scgi_pass_request_body=off";
    Lines, "An unrequested 101 ends the client's connection.": "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "grpc_pass";
    Lines, "`$upstream_status` is that of the response,":
        "$upstream_status" "$request_completion" "$body_bytes_sent@log_format";
    Lines, "With `proxy_request_buffering off` a body that has already arrived completely counts as buffered:":
        "proxy_request_buffering=off" "fastcgi_request_buffering=off" "uwsgi_request_buffering=off"
        "scgi_request_buffering=off";
    Lines, "`proxy_buffering` is for slow clients only.":
        "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "proxy_buffering" "fastcgi_buffering" "uwsgi_buffering"
        "scgi_buffering" "proxy_buffers" "fastcgi_buffers" "uwsgi_buffers" "scgi_buffers" "proxy_buffer_size"
        "fastcgi_buffer_size" "uwsgi_buffer_size" "scgi_buffer_size" "proxy_busy_buffers_size"
        "fastcgi_busy_buffers_size" "uwsgi_busy_buffers_size" "scgi_busy_buffers_size" "proxy_temp_file_write_size"
        "fastcgi_temp_file_write_size" "uwsgi_temp_file_write_size" "scgi_temp_file_write_size"
        "proxy_max_temp_file_size" "fastcgi_max_temp_file_size" "uwsgi_max_temp_file_size" "scgi_max_temp_file_size";
    Lines, "A disk that refuses the temporary file, or is slow, holds the server back.":
        "proxy_temp_path" "fastcgi_temp_path" "uwsgi_temp_path" "scgi_temp_path" "proxy_max_temp_file_size"
        "fastcgi_max_temp_file_size" "uwsgi_max_temp_file_size" "scgi_max_temp_file_size";
    Lines, "`proxy_store` writes beside the file's destination,":
        "proxy_store" "fastcgi_store" "uwsgi_store" "scgi_store";
    Lines, "A reload that introduces the first `proxy_bind … transparent` is refused:":
        "proxy_bind=transparent" "fastcgi_bind=transparent" "uwsgi_bind=transparent" "scgi_bind=transparent"
        "grpc_bind=transparent";
    Lines, "A 204 has no `Content-Length`": "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "grpc_pass";
    Lines, "Data received before a response was cut off has been passed on,":
        "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "grpc_pass";
    Lines, "A response that is not HTTP is an error.": "proxy_pass";
    Lines, "Interim responses are not the response.":
        "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "grpc_pass";
    Lines, "A response that is cut off is recognisable,":
        "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "grpc_pass";
    Lines, "Blanks and control bytes in a URI or arguments made from variables":
        "proxy_pass" "fastcgi_pass" "uwsgi_pass" "scgi_pass" "grpc_pass" "set=$args";
    Lines, "A FastCGI response ends with its end record.": "fastcgi_pass" "fastcgi_keep_conn";
    Lines, "A `Status` below 200 results in 502": "fastcgi_pass" "uwsgi_pass" "scgi_pass";
    Lines, "The response to a HEAD is read to its end": "fastcgi_keep_conn";
    Lines, "An SCGI request without a body says so:": "scgi_pass_request_body";
    Lines, "A cache may be used by any of them,":
        "proxy_cache_path" "fastcgi_cache_path" "uwsgi_cache_path" "scgi_cache_path";
    Lines, "A response without a length that a TLS server breaks off is broken": "proxy_pass=https:";
    Lines, "TLS to servers is 1.2 and 1.3,":
        "proxy_pass=https:" "grpc_pass=grpcs:" "uwsgi_pass=suwsgi:" "proxy_ssl_protocols" "proxy_ssl_ciphers"
        "grpc_ssl_protocols" "grpc_ssl_ciphers" "uwsgi_ssl_protocols" "uwsgi_ssl_ciphers";
    Lines, "All loops share the state of a group's servers,":
        "upstream" "zone" "server=max_conns=" "server=max_fails=" "server=fail_timeout=";
    Lines, "A reload keeps the state of a group": "upstream";
    Lines, "A client that leaves before the head of a response says nothing of the server.":
        "upstream" "server=max_fails=" "server=fail_timeout=";
    Lines, "A kept connection is reused only with the same local address":
        "proxy_bind" "fastcgi_bind" "uwsgi_bind" "scgi_bind" "grpc_bind";
    Lines, "Re-resolving a group does not disturb requests in progress.": "server=resolve";
    Lines, "Servers that `least_time` considers equal take turns, all of them.": "least_time";
    Lines, "`resolver`": "resolver";
    Lines, "Entries have a format of their own":
        "proxy_cache_path" "fastcgi_cache_path" "uwsgi_cache_path" "scgi_cache_path";
    Lines, "A response to HEAD of FastCGI, uwsgi and SCGI is stored only if the key contains the method":
        "fastcgi_cache_key" "uwsgi_cache_key" "scgi_cache_key" "fastcgi_cache" "uwsgi_cache" "scgi_cache"
        "proxy_cache_convert_head";
    Lines, "A client that gets a stale response does not wait for the background update.":
        "proxy_cache_background_update" "fastcgi_cache_background_update" "uwsgi_cache_background_update"
        "scgi_cache_background_update" "proxy_cache_use_stale" "fastcgi_cache_use_stale" "uwsgi_cache_use_stale"
        "scgi_cache_use_stale";
    Lines, "A cache answers without a disk that is slow, fails or hangs:":
        "proxy_cache_path" "fastcgi_cache_path" "uwsgi_cache_path" "scgi_cache_path";
    Lines, "With `proxy_cache_lock on` the other requests follow the first one's fetch":
        "proxy_cache_lock" "fastcgi_cache_lock" "uwsgi_cache_lock" "scgi_cache_lock" "proxy_cache_lock_timeout"
        "fastcgi_cache_lock_timeout" "uwsgi_cache_lock_timeout" "scgi_cache_lock_timeout" "proxy_cache_lock_age"
        "fastcgi_cache_lock_age" "uwsgi_cache_lock_age" "scgi_cache_lock_age";
    Lines, "A client that leaves before the head of the response has come does not end the fetch:":
        "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache";
    Lines, "A complete response is used while it is still being written.":
        "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache";
    Lines, "Of two concurrent responses for one key, the one requested later stays.":
        "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache";
    Lines, "`no-cache=\"X-Name\"` and `private=\"X-Name\"` keep that field out of what is stored":
        "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache"
        "proxy_cache_valid" "fastcgi_cache_valid" "uwsgi_cache_valid" "scgi_cache_valid";
    Lines, "A stored response has a length,": "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache";
    Lines, "`Age` is calculated and sent.": "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache"
        "proxy_cache_valid" "fastcgi_cache_valid" "uwsgi_cache_valid" "scgi_cache_valid";
    Lines, "Responses to requests with `Authorization` are stored only if they allow it":
        "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache";
    Lines, "A 304 of the origin replaces the header fields that it has":
        "proxy_cache_revalidate" "fastcgi_cache_revalidate" "uwsgi_cache_revalidate" "scgi_cache_revalidate"
        "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache";
    Lines, "A failure is kept (`proxy_cache_valid 502 …`) only where nothing is stored.":
        "proxy_cache_valid=502" "proxy_cache_valid=504" "proxy_cache_valid=any" "fastcgi_cache_valid=502"
        "fastcgi_cache_valid=504" "fastcgi_cache_valid=any" "uwsgi_cache_valid=502" "uwsgi_cache_valid=504"
        "uwsgi_cache_valid=any" "scgi_cache_valid=502" "scgi_cache_valid=504" "scgi_cache_valid=any";
    Lines, "A disk never fails a request.": "proxy_cache" "fastcgi_cache" "uwsgi_cache" "scgi_cache";
    Lines, "`max_size` is never exceeded":
        "proxy_cache_path" "fastcgi_cache_path" "uwsgi_cache_path" "scgi_cache_path";
    Lines, "A reload may change `max_size`, `min_free`, `inactive` and the size of `keys_zone`":
        "proxy_cache_path" "fastcgi_cache_path" "uwsgi_cache_path" "scgi_cache_path";
    Lines, "`use_temp_path`, `loader_files` and `manager_threshold` have no effect.":
        "proxy_cache_path=use_temp_path" "fastcgi_cache_path=use_temp_path" "uwsgi_cache_path=use_temp_path"
        "scgi_cache_path=use_temp_path" "proxy_cache_path=loader_files" "fastcgi_cache_path=loader_files"
        "uwsgi_cache_path=loader_files" "scgi_cache_path=loader_files" "proxy_cache_path=manager_threshold"
        "fastcgi_cache_path=manager_threshold" "uwsgi_cache_path=manager_threshold"
        "scgi_cache_path=manager_threshold" "proxy_cache_path=purger" "fastcgi_cache_path=purger"
        "uwsgi_cache_path=purger" "scgi_cache_path=purger";
    Lines, "The first slice is sent before the second is requested.": "slice";
    Lines, "`proxy_cache_purge` is built in":
        "proxy_cache_purge" "fastcgi_cache_purge" "uwsgi_cache_purge" "scgi_cache_purge";
}
