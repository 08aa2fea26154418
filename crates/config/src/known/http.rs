//! Directives of `http` and its modules, but for those that pass requests on.
//! Facts only (names, places, numbers of arguments), taken from the tables of nginx 1.31.5; see the parent module.

use super::row::rows;

rows! {
    "http_access" {
        "allow": [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1;
        "deny": [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1;
    }
    "http_addition" {
        "add_after_body": [HTTP | SERVER | LOCATION] 1;
        "add_before_body": [HTTP | SERVER | LOCATION] 1;
        "addition_types": [HTTP | SERVER | LOCATION] (1..);
    }
    "http_auth_basic" {
        "auth_basic": [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1;
        "auth_basic_user_file": [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1;
    }
    "http_auth_request" {
        "auth_request": [HTTP | SERVER | LOCATION] 1;
        "auth_request_set": [HTTP | SERVER | LOCATION] 2;
    }
    "http_autoindex" {
        "autoindex": [HTTP | SERVER | LOCATION] FLAG;
        "autoindex_exact_size": [HTTP | SERVER | LOCATION] FLAG;
        "autoindex_format": [HTTP | SERVER | LOCATION] 1;
        "autoindex_localtime": [HTTP | SERVER | LOCATION] FLAG;
    }
    "http_browser" {
        "ancient_browser": [HTTP | SERVER | LOCATION] (1..);
        "ancient_browser_value": [HTTP | SERVER | LOCATION] 1;
        "modern_browser": [HTTP | SERVER | LOCATION] (1..=2);
        "modern_browser_value": [HTTP | SERVER | LOCATION] 1;
    }
    "http_charset" {
        "charset": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        "charset_map": [HTTP] 2 block;
        "charset_types": [HTTP | SERVER | LOCATION] (1..);
        "override_charset": [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        "source_charset": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
    }
    "http_core" {
        "absolute_redirect": [HTTP | SERVER | LOCATION] FLAG;
        "aio": [HTTP | SERVER | LOCATION] 1;
        "aio_write": [HTTP | SERVER | LOCATION] FLAG;
        "alias": [LOCATION] 1;
        "auth_delay": [HTTP | SERVER | LOCATION] 1;
        "chunked_transfer_encoding": [HTTP | SERVER | LOCATION] FLAG;
        "client_body_buffer_size": [HTTP | SERVER | LOCATION] 1 => NO_STORED_BODY;
        "client_body_early_read": [HTTP | SERVER] (1..);
        "client_body_in_file_only": [HTTP | SERVER | LOCATION] 1 => NO_STORED_BODY;
        "client_body_in_single_buffer": [HTTP | SERVER | LOCATION] FLAG => NO_STORED_BODY;
        "client_body_temp_path": [HTTP | SERVER | LOCATION] (1..=4) => NO_STORED_BODY;
        "client_body_timeout": [HTTP | SERVER | LOCATION] 1;
        "client_header_buffer_size": [HTTP | SERVER] 1;
        "client_header_timeout": [HTTP | SERVER] 1;
        "client_max_body_size": [HTTP | SERVER | LOCATION] 1;
        "connection_pool_size": [HTTP | SERVER] 1 => NO_MEMORY_POOLS;
        "default_type": [HTTP | SERVER | LOCATION] 1;
        "directio": [HTTP | SERVER | LOCATION] 1;
        "directio_alignment": [HTTP | SERVER | LOCATION] 1;
        "disable_symlinks": [HTTP | SERVER | LOCATION] (1..=2);
        "early_hints": [HTTP | SERVER | LOCATION] (1..) => NO_INTERIM;
        "error_log": [HTTP | SERVER | LOCATION] (1..);
        "error_page": [HTTP | SERVER | LOCATION | LOCATION_IF] (2..);
        "etag": [HTTP | SERVER | LOCATION] FLAG;
        "gzip_disable": [HTTP | SERVER | LOCATION] (1..);
        "gzip_http_version": [HTTP | SERVER | LOCATION] 1;
        "gzip_proxied": [HTTP | SERVER | LOCATION] (1..);
        "gzip_vary": [HTTP | SERVER | LOCATION] FLAG;
        "if_modified_since": [HTTP | SERVER | LOCATION] 1;
        "ignore_invalid_headers": [HTTP | SERVER] FLAG;
        "internal": [LOCATION] 0;
        "keepalive_disable": [HTTP | SERVER | LOCATION] (1..=2);
        "keepalive_min_timeout": [HTTP | SERVER | LOCATION] 1;
        "keepalive_requests": [HTTP | SERVER | LOCATION] 1;
        "keepalive_time": [HTTP | SERVER | LOCATION] 1;
        "keepalive_timeout": [HTTP | SERVER | LOCATION] (1..=2);
        "large_client_header_buffers": [HTTP | SERVER] 2;
        "limit_except": [LOCATION] (1..) block;
        "limit_rate": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        "limit_rate_after": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        "lingering_close": [HTTP | SERVER | LOCATION] 1;
        "lingering_time": [HTTP | SERVER | LOCATION] 1;
        "lingering_timeout": [HTTP | SERVER | LOCATION] 1;
        "listen": [SERVER] (1..);
        "location": [SERVER | LOCATION] (1..=2) block;
        "log_not_found": [HTTP | SERVER | LOCATION] FLAG;
        "log_subrequest": [HTTP | SERVER | LOCATION] FLAG;
        "max_headers": [HTTP | SERVER] 1;
        "max_ranges": [HTTP | SERVER | LOCATION] 1;
        "merge_slashes": [HTTP | SERVER] FLAG;
        "msie_padding": [HTTP | SERVER | LOCATION] FLAG;
        "msie_refresh": [HTTP | SERVER | LOCATION] FLAG;
        "open_file_cache": [HTTP | SERVER | LOCATION] (1..=2);
        "open_file_cache_errors": [HTTP | SERVER | LOCATION] FLAG;
        "open_file_cache_events": [HTTP | SERVER | LOCATION] FLAG => NO_KQUEUE;
        "open_file_cache_min_uses": [HTTP | SERVER | LOCATION] 1;
        "open_file_cache_valid": [HTTP | SERVER | LOCATION] 1;
        "output_buffers": [HTTP | SERVER | LOCATION] 2;
        "port_in_redirect": [HTTP | SERVER | LOCATION] FLAG;
        "post_action": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        "postpone_output": [HTTP | SERVER | LOCATION] 1 => ONE_SEND;
        "read_ahead": [HTTP | SERVER | LOCATION] 1;
        "recursive_error_pages": [HTTP | SERVER | LOCATION] FLAG;
        "request_pool_size": [HTTP | SERVER] 1 => NO_MEMORY_POOLS;
        "reset_timedout_connection": [HTTP | SERVER | LOCATION] FLAG;
        "resolver": [HTTP | SERVER | LOCATION] (1..) => NO_NAMES;
        "resolver_timeout": [HTTP | SERVER | LOCATION] 1 => NO_NAMES;
        "root": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        "satisfy": [HTTP | SERVER | LOCATION] 1;
        "send_lowat": [HTTP | SERVER | LOCATION] 1 => NO_LOW_WATER;
        "send_timeout": [HTTP | SERVER | LOCATION] 1;
        "sendfile": [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        "sendfile_max_chunk": [HTTP | SERVER | LOCATION] 1;
        "server": [HTTP] 0 block;
        "server_name": [SERVER] (1..);
        "server_name_in_redirect": [HTTP | SERVER | LOCATION] FLAG;
        "server_names_hash_bucket_size": [HTTP] 1 => TABLES_GROW;
        "server_names_hash_max_size": [HTTP] 1 => TABLES_GROW;
        "server_tokens": [HTTP | SERVER | LOCATION] 1;
        "subrequest_output_buffer_size": [HTTP | SERVER | LOCATION] 1;
        "tcp_nodelay": [HTTP | SERVER | LOCATION] FLAG;
        "tcp_nopush": [HTTP | SERVER | LOCATION] FLAG;
        "types": [HTTP | SERVER | LOCATION] 0 block;
        "types_hash_bucket_size": [HTTP | SERVER | LOCATION] 1 => TABLES_GROW;
        "types_hash_max_size": [HTTP | SERVER | LOCATION] 1 => TABLES_GROW;
        "underscores_in_headers": [HTTP | SERVER] FLAG;
        "variables_hash_bucket_size": [HTTP] 1 => TABLES_GROW;
        "variables_hash_max_size": [HTTP] 1 => TABLES_GROW;
    }
    "http_dav" {
        "create_full_put_path": [HTTP | SERVER | LOCATION] FLAG;
        "dav_access": [HTTP | SERVER | LOCATION] (1..=3);
        "dav_methods": [HTTP | SERVER | LOCATION] (1..);
        "min_delete_depth": [HTTP | SERVER | LOCATION] 1;
    }
    "http_degradation" {
        "degradation": [HTTP] 1 => NO_SBRK;
        "degrade": [HTTP | SERVER | LOCATION] 1 => NO_SBRK;
    }
    "http_empty_gif" {
        "empty_gif": [LOCATION] 0;
    }
    "http_flv" {
        "flv": [LOCATION] 0;
    }
    "http_geo" {
        "geo": [HTTP] (1..=2) block;
    }
    "http_geoip" {
        "geoip_city": [HTTP] (1..=2);
        "geoip_country": [HTTP] (1..=2);
        "geoip_org": [HTTP] (1..=2);
        "geoip_proxy": [HTTP] 1;
        "geoip_proxy_recursive": [HTTP] FLAG;
    }
    "http_gunzip" {
        "gunzip": [HTTP | SERVER | LOCATION] FLAG;
        "gunzip_buffers": [HTTP | SERVER | LOCATION] 2 => GZIP_MEMORY;
    }
    "http_gzip" {
        "gzip": [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        "gzip_buffers": [HTTP | SERVER | LOCATION] 2 => GZIP_MEMORY;
        "gzip_comp_level": [HTTP | SERVER | LOCATION] 1;
        "gzip_hash": [HTTP | SERVER | LOCATION] 1 => GZIP_HASH;
        "gzip_min_length": [HTTP | SERVER | LOCATION] 1;
        "gzip_no_buffer": [HTTP | SERVER | LOCATION] FLAG => GZIP_MEMORY;
        "gzip_types": [HTTP | SERVER | LOCATION] (1..);
        "gzip_window": [HTTP | SERVER | LOCATION] 1;
        "postpone_gzipping": [HTTP | SERVER | LOCATION] 1 => GZIP_MEMORY;
    }
    "http_gzip_static" {
        "gzip_static": [HTTP | SERVER | LOCATION] 1;
    }
    "http_headers" {
        "add_header": [HTTP | SERVER | LOCATION | LOCATION_IF] (2..=3);
        "add_header_inherit": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        "add_trailer": [HTTP | SERVER | LOCATION | LOCATION_IF] (2..=3);
        "add_trailer_inherit": [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        "expires": [HTTP | SERVER | LOCATION | LOCATION_IF] (1..=2);
    }
    "http_image" {
        "image_filter": [LOCATION] (1..=3);
        "image_filter_buffer": [HTTP | SERVER | LOCATION] 1;
        "image_filter_interlace": [HTTP | SERVER | LOCATION] FLAG;
        "image_filter_jpeg_quality": [HTTP | SERVER | LOCATION] 1;
        "image_filter_sharpen": [HTTP | SERVER | LOCATION] 1;
        "image_filter_transparency": [HTTP | SERVER | LOCATION] FLAG;
        "image_filter_webp_quality": [HTTP | SERVER | LOCATION] 1;
    }
    "http_index" {
        "index": [HTTP | SERVER | LOCATION] (1..);
    }
    "http_limit_conn" {
        "limit_conn": [HTTP | SERVER | LOCATION] 2;
        "limit_conn_dry_run": [HTTP | SERVER | LOCATION] FLAG;
        "limit_conn_log_level": [HTTP | SERVER | LOCATION] 1;
        "limit_conn_status": [HTTP | SERVER | LOCATION] 1;
        "limit_conn_zone": [HTTP] 2;
    }
    "http_limit_req" {
        "limit_req": [HTTP | SERVER | LOCATION] (1..=3);
        "limit_req_dry_run": [HTTP | SERVER | LOCATION] FLAG;
        "limit_req_log_level": [HTTP | SERVER | LOCATION] 1;
        "limit_req_status": [HTTP | SERVER | LOCATION] 1;
        "limit_req_zone": [HTTP] 3;
    }
    "http_log" {
        "access_log": [HTTP | SERVER | LOCATION | LOCATION_IF | LIMIT_EXCEPT] (1..);
        "log_format": [HTTP] (2..);
        "open_log_file_cache": [HTTP | SERVER | LOCATION] (1..=4);
    }
    "http_map" {
        "map": [HTTP] 2 block;
        "map_hash_bucket_size": [HTTP] 1 => TABLES_GROW;
        "map_hash_max_size": [HTTP] 1 => TABLES_GROW;
    }
    "http_mirror" {
        "mirror": [HTTP | SERVER | LOCATION] 1;
        "mirror_request_body": [HTTP | SERVER | LOCATION] FLAG;
    }
    "http_mp4" {
        "mp4": [LOCATION] 0;
        "mp4_buffer_size": [HTTP | SERVER | LOCATION] 1;
        "mp4_max_buffer_size": [HTTP | SERVER | LOCATION] 1;
        "mp4_start_key_frame": [HTTP | SERVER | LOCATION] FLAG;
    }
    "http_perl" {
        "perl": [LOCATION | LIMIT_EXCEPT] 1 => NO_PERL;
        "perl_modules": [HTTP] 1 => NO_PERL;
        "perl_require": [HTTP] 1 => NO_PERL;
        "perl_set": [HTTP] 2 => NO_PERL;
    }
    "http_random_index" {
        "random_index": [LOCATION] FLAG;
    }
    "http_realip" {
        "real_ip_header": [HTTP | SERVER | LOCATION] 1;
        "real_ip_recursive": [HTTP | SERVER | LOCATION] FLAG;
        "set_real_ip_from": [HTTP | SERVER | LOCATION] 1;
    }
    "http_referer" {
        "referer_hash_bucket_size": [SERVER | LOCATION] 1 => TABLES_GROW;
        "referer_hash_max_size": [SERVER | LOCATION] 1 => TABLES_GROW;
        "valid_referers": [SERVER | LOCATION] (1..);
    }
    "http_rewrite" {
        "break": [SERVER | LOCATION | SERVER_IF | LOCATION_IF] 0;
        "if": [SERVER | LOCATION] (1..) block;
        "return": [SERVER | LOCATION | SERVER_IF | LOCATION_IF] (1..=2);
        "rewrite": [SERVER | LOCATION | SERVER_IF | LOCATION_IF] (2..=3);
        "rewrite_log": [HTTP | SERVER | LOCATION | SERVER_IF | LOCATION_IF] FLAG;
        "set": [SERVER | LOCATION | SERVER_IF | LOCATION_IF] 2;
        "uninitialized_variable_warn": [HTTP | SERVER | LOCATION | SERVER_IF | LOCATION_IF] FLAG;
    }
    "http_secure_link" {
        "secure_link": [HTTP | SERVER | LOCATION] 1;
        "secure_link_md5": [HTTP | SERVER | LOCATION] 1;
        "secure_link_secret": [HTTP | SERVER | LOCATION] 1;
    }
    "http_slice" {
        "slice": [HTTP | SERVER | LOCATION] 1;
    }
    "http_split_clients" {
        "split_clients": [HTTP] 2 block;
    }
    "http_ssi" {
        "ssi": [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        "ssi_ignore_recycled_buffers": [HTTP | SERVER | LOCATION] FLAG => NO_RECYCLED_BUFFERS;
        "ssi_last_modified": [HTTP | SERVER | LOCATION] FLAG;
        "ssi_min_file_chunk": [HTTP | SERVER | LOCATION] 1 => TEXTS_ARE_READ;
        "ssi_silent_errors": [HTTP | SERVER | LOCATION] FLAG;
        "ssi_types": [HTTP | SERVER | LOCATION] (1..);
        "ssi_value_length": [HTTP | SERVER | LOCATION] 1;
    }
    "http_ssl" {
        "ssl_buffer_size": [HTTP | SERVER] 1;
        "ssl_certificate": [HTTP | SERVER] 1;
        "ssl_certificate_cache": [HTTP | SERVER] (1..=3);
        "ssl_certificate_compression": [HTTP | SERVER] FLAG;
        "ssl_certificate_key": [HTTP | SERVER] 1;
        "ssl_ciphers": [HTTP | SERVER] 1;
        "ssl_client_certificate": [HTTP | SERVER] 1;
        "ssl_conf_command": [HTTP | SERVER] 2;
        "ssl_crl": [HTTP | SERVER] 1;
        "ssl_dhparam": [HTTP | SERVER] 1;
        "ssl_early_data": [HTTP | SERVER] FLAG;
        "ssl_ecdh_curve": [HTTP | SERVER] 1;
        "ssl_ech_file": [HTTP | SERVER] 1 => NO_ECH;
        "ssl_ocsp": [HTTP | SERVER] 1;
        "ssl_ocsp_cache": [HTTP | SERVER] 1;
        "ssl_ocsp_responder": [HTTP | SERVER] 1;
        "ssl_password_file": [HTTP | SERVER] 1;
        "ssl_prefer_server_ciphers": [HTTP | SERVER] FLAG;
        "ssl_protocols": [HTTP | SERVER] (1..);
        "ssl_reject_handshake": [HTTP | SERVER] FLAG;
        "ssl_session_cache": [HTTP | SERVER] (1..=2);
        "ssl_session_ticket_key": [HTTP | SERVER] 1;
        "ssl_session_tickets": [HTTP | SERVER] FLAG;
        "ssl_session_timeout": [HTTP | SERVER] 1;
        "ssl_stapling": [HTTP | SERVER] FLAG;
        "ssl_stapling_file": [HTTP | SERVER] 1;
        "ssl_stapling_responder": [HTTP | SERVER] 1;
        "ssl_stapling_verify": [HTTP | SERVER] FLAG;
        "ssl_trusted_certificate": [HTTP | SERVER] 1;
        "ssl_verify_client": [HTTP | SERVER] 1;
        "ssl_verify_depth": [HTTP | SERVER] 1;
    }
    "http_stub_status" {
        "stub_status": [SERVER | LOCATION] (0..=1);
    }
    "http_sub" {
        "sub_filter": [HTTP | SERVER | LOCATION] 2;
        "sub_filter_last_modified": [HTTP | SERVER | LOCATION] FLAG;
        "sub_filter_once": [HTTP | SERVER | LOCATION] FLAG;
        "sub_filter_types": [HTTP | SERVER | LOCATION] (1..);
    }
    "http_try_files" {
        "try_files": [SERVER | LOCATION] (2..);
    }
    "http_upstream" {
        "resolver": [UPSTREAM] (1..);
        "resolver_timeout": [UPSTREAM] 1;
        "server": [UPSTREAM] (1..);
        "upstream": [HTTP] 1 block;
    }
    "http_upstream_hash" {
        "hash": [UPSTREAM] (1..=2);
    }
    "http_upstream_ip_hash" {
        "ip_hash": [UPSTREAM] 0;
    }
    "http_upstream_keepalive" {
        "keepalive": [UPSTREAM] (1..=2);
        "keepalive_requests": [UPSTREAM] 1;
        "keepalive_time": [UPSTREAM] 1;
        "keepalive_timeout": [UPSTREAM] 1;
    }
    "http_upstream_least_conn" {
        "least_conn": [UPSTREAM] 0;
    }
    "http_upstream_least_time" {
        "least_time": [UPSTREAM] (1..=2);
    }
    "http_upstream_random" {
        "random": [UPSTREAM] (0..=2);
    }
    "http_upstream_sticky" {
        "sticky": [UPSTREAM] (2..);
    }
    "http_upstream_zone" {
        "zone": [UPSTREAM] (1..=2);
    }
    "http_userid" {
        "userid": [HTTP | SERVER | LOCATION] 1;
        "userid_domain": [HTTP | SERVER | LOCATION] 1;
        "userid_expires": [HTTP | SERVER | LOCATION] 1;
        "userid_flags": [HTTP | SERVER | LOCATION] (1..=3);
        "userid_mark": [HTTP | SERVER | LOCATION] 1;
        "userid_name": [HTTP | SERVER | LOCATION] 1;
        "userid_p3p": [HTTP | SERVER | LOCATION] 1;
        "userid_path": [HTTP | SERVER | LOCATION] 1;
        "userid_service": [HTTP | SERVER | LOCATION] 1;
    }
    "http_v2" {
        "http2": [HTTP | SERVER] FLAG;
        "http2_body_preread_size": [HTTP | SERVER] 1 => NO_HTTP2;
        "http2_chunk_size": [HTTP | SERVER | LOCATION] 1 => NO_HTTP2;
        "http2_idle_timeout": [HTTP | SERVER] 1 => OBSOLETE;
        "http2_max_concurrent_pushes": [HTTP | SERVER] 1 => OBSOLETE;
        "http2_max_concurrent_streams": [HTTP | SERVER] 1 => NO_HTTP2;
        "http2_max_field_size": [HTTP | SERVER] 1 => OBSOLETE;
        "http2_max_header_size": [HTTP | SERVER] 1 => OBSOLETE;
        "http2_max_requests": [HTTP | SERVER] 1 => OBSOLETE;
        "http2_pool_size": [HTTP | SERVER] 1 => NO_MEMORY_POOLS;
        "http2_push": [HTTP | SERVER | LOCATION] 1 => OBSOLETE;
        "http2_push_preload": [HTTP | SERVER | LOCATION] FLAG => OBSOLETE;
        "http2_recv_buffer_size": [HTTP] 1 => NO_HTTP2;
        "http2_recv_timeout": [HTTP | SERVER] 1 => OBSOLETE;
        "http2_streams_index_size": [HTTP | SERVER] 1 => TABLES_GROW;
    }
    "http_v3" {
        "http3": [HTTP | SERVER] FLAG;
        "http3_hq": [HTTP | SERVER] FLAG;
        "http3_max_concurrent_streams": [HTTP | SERVER] 1;
        "http3_stream_buffer_size": [HTTP | SERVER] 1;
        "quic_active_connection_id_limit": [HTTP | SERVER] 1;
        "quic_gso": [HTTP | SERVER] FLAG;
        "quic_host_key": [HTTP | SERVER] 1;
        "quic_retry": [HTTP | SERVER] FLAG;
    }
    "http_xslt" {
        "xml_entities": [HTTP | SERVER | LOCATION] 1;
        "xml_external_entities": [HTTP | SERVER | LOCATION] FLAG;
        "xslt_last_modified": [HTTP | SERVER | LOCATION] FLAG;
        "xslt_param": [HTTP | SERVER | LOCATION] 2;
        "xslt_string_param": [HTTP | SERVER | LOCATION] 2;
        "xslt_stylesheet": [LOCATION] (1..);
        "xslt_types": [HTTP | SERVER | LOCATION] (1..);
    }
}
