//! Directives of `mail` and its modules.
//! Facts only (names, places, numbers of arguments), taken from the tables of nginx 1.31.5; see the parent module.

use super::row::rows;

rows! {
    "mail_auth_http" {
        "auth_http": [MAIL | MAIL_SERVER] 1;
        "auth_http_header": [MAIL | MAIL_SERVER] 2;
        "auth_http_pass_client_cert": [MAIL | MAIL_SERVER] FLAG;
        "auth_http_timeout": [MAIL | MAIL_SERVER] 1;
    }
    "mail_core" {
        "error_log": [MAIL | MAIL_SERVER] (1..);
        "listen": [MAIL_SERVER] (1..);
        "max_errors": [MAIL | MAIL_SERVER] 1;
        "protocol": [MAIL_SERVER] 1;
        "resolver": [MAIL | MAIL_SERVER] (1..);
        "resolver_timeout": [MAIL | MAIL_SERVER] 1;
        "server": [MAIL] 0 block;
        "server_name": [MAIL | MAIL_SERVER] 1;
        "timeout": [MAIL | MAIL_SERVER] 1;
    }
    "mail_imap" {
        "imap_auth": [MAIL | MAIL_SERVER] (1..);
        "imap_capabilities": [MAIL | MAIL_SERVER] (1..);
        "imap_client_buffer": [MAIL | MAIL_SERVER] 1;
    }
    "mail_pop3" {
        "pop3_auth": [MAIL | MAIL_SERVER] (1..);
        "pop3_capabilities": [MAIL | MAIL_SERVER] (1..);
    }
    "mail_proxy" {
        "proxy": [MAIL | MAIL_SERVER] FLAG;
        "proxy_buffer": [MAIL | MAIL_SERVER] 1;
        "proxy_pass_error_message": [MAIL | MAIL_SERVER] FLAG;
        "proxy_protocol": [MAIL | MAIL_SERVER] 1;
        "proxy_smtp_auth": [MAIL | MAIL_SERVER] FLAG;
        "proxy_timeout": [MAIL | MAIL_SERVER] 1;
        "xclient": [MAIL | MAIL_SERVER] FLAG;
    }
    "mail_realip" {
        "set_real_ip_from": [MAIL | MAIL_SERVER] 1;
    }
    "mail_smtp" {
        "smtp_auth": [MAIL | MAIL_SERVER] (1..);
        "smtp_capabilities": [MAIL | MAIL_SERVER] (1..);
        "smtp_client_buffer": [MAIL | MAIL_SERVER] 1;
        "smtp_greeting_delay": [MAIL | MAIL_SERVER] 1;
    }
    "mail_ssl" {
        "ssl_certificate": [MAIL | MAIL_SERVER] 1;
        "ssl_certificate_compression": [MAIL | MAIL_SERVER] FLAG;
        "ssl_certificate_key": [MAIL | MAIL_SERVER] 1;
        "ssl_ciphers": [MAIL | MAIL_SERVER] 1;
        "ssl_client_certificate": [MAIL | MAIL_SERVER] 1;
        "ssl_conf_command": [MAIL | MAIL_SERVER] 2;
        "ssl_crl": [MAIL | MAIL_SERVER] 1;
        "ssl_dhparam": [MAIL | MAIL_SERVER] 1;
        "ssl_ecdh_curve": [MAIL | MAIL_SERVER] 1;
        "ssl_password_file": [MAIL | MAIL_SERVER] 1;
        "ssl_prefer_server_ciphers": [MAIL | MAIL_SERVER] FLAG;
        "ssl_protocols": [MAIL | MAIL_SERVER] (1..);
        "ssl_session_cache": [MAIL | MAIL_SERVER] (1..=2);
        "ssl_session_ticket_key": [MAIL | MAIL_SERVER] 1;
        "ssl_session_tickets": [MAIL | MAIL_SERVER] FLAG;
        "ssl_session_timeout": [MAIL | MAIL_SERVER] 1;
        "ssl_trusted_certificate": [MAIL | MAIL_SERVER] 1;
        "ssl_verify_client": [MAIL | MAIL_SERVER] 1;
        "ssl_verify_depth": [MAIL | MAIL_SERVER] 1;
        "starttls": [MAIL | MAIL_SERVER] 1;
    }
}
