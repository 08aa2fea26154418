//! Directives of `stream` and its modules.
//! Facts only (names, places, numbers of arguments), taken from the tables of nginx 1.31.5; see the parent module.

use super::row::rows;

rows! {
    "stream_access" {
        "allow": [STREAM | STREAM_SERVER] 1;
        "deny": [STREAM | STREAM_SERVER] 1;
    }
    "stream_core" {
        "error_log": [STREAM | STREAM_SERVER] (1..);
        "listen": [STREAM_SERVER] (1..);
        "preread_buffer_size": [STREAM | STREAM_SERVER] 1;
        "preread_timeout": [STREAM | STREAM_SERVER] 1;
        "proxy_protocol_timeout": [STREAM | STREAM_SERVER] 1;
        "resolver": [STREAM | STREAM_SERVER] (1..);
        "resolver_timeout": [STREAM | STREAM_SERVER] 1;
        "server": [STREAM] 0 block;
        "server_name": [STREAM_SERVER] (1..);
        "server_names_hash_bucket_size": [STREAM] 1 => TABLES_GROW;
        "server_names_hash_max_size": [STREAM] 1 => TABLES_GROW;
        "tcp_nodelay": [STREAM | STREAM_SERVER] FLAG;
        "variables_hash_bucket_size": [STREAM] 1 => TABLES_GROW;
        "variables_hash_max_size": [STREAM] 1 => TABLES_GROW;
    }
    "stream_geo" {
        "geo": [STREAM] (1..=2) block;
    }
    "stream_geoip" {
        "geoip_city": [STREAM] (1..=2);
        "geoip_country": [STREAM] (1..=2);
        "geoip_org": [STREAM] (1..=2);
    }
    "stream_limit_conn" {
        "limit_conn": [STREAM | STREAM_SERVER] 2;
        "limit_conn_dry_run": [STREAM | STREAM_SERVER] FLAG;
        "limit_conn_log_level": [STREAM | STREAM_SERVER] 1;
        "limit_conn_zone": [STREAM] 2;
    }
    "stream_log" {
        "access_log": [STREAM | STREAM_SERVER] (1..);
        "log_format": [STREAM] (2..);
        "open_log_file_cache": [STREAM | STREAM_SERVER] (1..=4);
    }
    "stream_map" {
        "map": [STREAM] 2 block;
        "map_hash_bucket_size": [STREAM] 1 => TABLES_GROW;
        "map_hash_max_size": [STREAM] 1 => TABLES_GROW;
    }
    "stream_pass" {
        "pass": [STREAM_SERVER] 1;
    }
    "stream_proxy" {
        "proxy_bind": [STREAM | STREAM_SERVER] (1..=2);
        "proxy_buffer_size": [STREAM | STREAM_SERVER] 1;
        "proxy_connect_timeout": [STREAM | STREAM_SERVER] 1;
        "proxy_download_rate": [STREAM | STREAM_SERVER] 1;
        "proxy_downstream_buffer": [STREAM | STREAM_SERVER] 1;
        "proxy_half_close": [STREAM | STREAM_SERVER] FLAG;
        "proxy_next_upstream": [STREAM | STREAM_SERVER] FLAG;
        "proxy_next_upstream_timeout": [STREAM | STREAM_SERVER] 1;
        "proxy_next_upstream_tries": [STREAM | STREAM_SERVER] 1;
        "proxy_pass": [STREAM_SERVER] 1;
        "proxy_protocol": [STREAM | STREAM_SERVER] 1;
        "proxy_requests": [STREAM | STREAM_SERVER] 1;
        "proxy_responses": [STREAM | STREAM_SERVER] 1;
        "proxy_socket_keepalive": [STREAM | STREAM_SERVER] FLAG;
        "proxy_socket_rcvbuf": [STREAM | STREAM_SERVER] 1;
        "proxy_socket_sndbuf": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl": [STREAM | STREAM_SERVER] FLAG;
        "proxy_ssl_alpn": [STREAM | STREAM_SERVER] (1..);
        "proxy_ssl_certificate": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl_certificate_cache": [STREAM | STREAM_SERVER] (1..=3);
        "proxy_ssl_certificate_key": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl_ciphers": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl_conf_command": [STREAM | STREAM_SERVER] 2;
        "proxy_ssl_crl": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl_name": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl_password_file": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl_protocols": [STREAM | STREAM_SERVER] (1..);
        "proxy_ssl_server_name": [STREAM | STREAM_SERVER] FLAG;
        "proxy_ssl_session_reuse": [STREAM | STREAM_SERVER] FLAG;
        "proxy_ssl_trusted_certificate": [STREAM | STREAM_SERVER] 1;
        "proxy_ssl_verify": [STREAM | STREAM_SERVER] FLAG;
        "proxy_ssl_verify_depth": [STREAM | STREAM_SERVER] 1;
        "proxy_timeout": [STREAM | STREAM_SERVER] 1;
        "proxy_upload_rate": [STREAM | STREAM_SERVER] 1;
        "proxy_upstream_buffer": [STREAM | STREAM_SERVER] 1;
    }
    "stream_realip" {
        "set_real_ip_from": [STREAM | STREAM_SERVER] 1;
    }
    "stream_return" {
        "return": [STREAM_SERVER] 1;
    }
    "stream_set" {
        "set": [STREAM_SERVER] 2;
    }
    "stream_split_clients" {
        "split_clients": [STREAM] 2 block;
    }
    "stream_ssl" {
        "ssl_alpn": [STREAM | STREAM_SERVER] (1..);
        "ssl_certificate": [STREAM | STREAM_SERVER] 1;
        "ssl_certificate_cache": [STREAM | STREAM_SERVER] (1..=3);
        "ssl_certificate_compression": [STREAM | STREAM_SERVER] FLAG;
        "ssl_certificate_key": [STREAM | STREAM_SERVER] 1;
        "ssl_ciphers": [STREAM | STREAM_SERVER] 1;
        "ssl_client_certificate": [STREAM | STREAM_SERVER] 1;
        "ssl_conf_command": [STREAM | STREAM_SERVER] 2;
        "ssl_crl": [STREAM | STREAM_SERVER] 1;
        "ssl_dhparam": [STREAM | STREAM_SERVER] 1;
        "ssl_ecdh_curve": [STREAM | STREAM_SERVER] 1;
        "ssl_ech_file": [STREAM | STREAM_SERVER] 1;
        "ssl_handshake_timeout": [STREAM | STREAM_SERVER] 1;
        "ssl_ocsp": [STREAM | STREAM_SERVER] 1;
        "ssl_ocsp_cache": [STREAM | STREAM_SERVER] 1;
        "ssl_ocsp_responder": [STREAM | STREAM_SERVER] 1;
        "ssl_password_file": [STREAM | STREAM_SERVER] 1;
        "ssl_prefer_server_ciphers": [STREAM | STREAM_SERVER] FLAG;
        "ssl_protocols": [STREAM | STREAM_SERVER] (1..);
        "ssl_reject_handshake": [STREAM | STREAM_SERVER] FLAG;
        "ssl_session_cache": [STREAM | STREAM_SERVER] (1..=2);
        "ssl_session_ticket_key": [STREAM | STREAM_SERVER] 1;
        "ssl_session_tickets": [STREAM | STREAM_SERVER] FLAG;
        "ssl_session_timeout": [STREAM | STREAM_SERVER] 1;
        "ssl_stapling": [STREAM | STREAM_SERVER] FLAG;
        "ssl_stapling_file": [STREAM | STREAM_SERVER] 1;
        "ssl_stapling_responder": [STREAM | STREAM_SERVER] 1;
        "ssl_stapling_verify": [STREAM | STREAM_SERVER] FLAG;
        "ssl_trusted_certificate": [STREAM | STREAM_SERVER] 1;
        "ssl_verify_client": [STREAM | STREAM_SERVER] 1;
        "ssl_verify_depth": [STREAM | STREAM_SERVER] 1;
    }
    "stream_ssl_preread" {
        "ssl_preread": [STREAM | STREAM_SERVER] FLAG;
    }
    "stream_upstream" {
        "resolver": [STREAM_UPSTREAM] (1..);
        "resolver_timeout": [STREAM_UPSTREAM] 1;
        "server": [STREAM_UPSTREAM] (1..);
        "upstream": [STREAM] 1 block;
    }
    "stream_upstream_hash" {
        "hash": [STREAM_UPSTREAM] (1..=2);
    }
    "stream_upstream_least_conn" {
        "least_conn": [STREAM_UPSTREAM] 0;
    }
    "stream_upstream_least_time" {
        "least_time": [STREAM_UPSTREAM] (1..=2);
    }
    "stream_upstream_random" {
        "random": [STREAM_UPSTREAM] (0..=2);
    }
    "stream_upstream_zone" {
        "zone": [STREAM_UPSTREAM] (1..=2);
    }
}
