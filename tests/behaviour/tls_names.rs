//! The server of a request over TLS: by its host, whatever name the handshake was for.

use super::tls::{CERTIFICATE, site};
use blackbox::Server;
use blackbox::tls::{Certificate, TlsClient};

#[test]
fn a_host_without_a_server_is_the_default_servers_whatever_name_the_handshake_was_for() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl default_server; {CERTIFICATE} http2 on; return 200 default; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example; {CERTIFICATE} return 200 b; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name c.example; {CERTIFICATE} ssl_verify_client optional; ssl_client_certificate a.crt; return 200 c; }}"
    );
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    let client = TlsClient::new(None);
    let text = |name, host| client.get_of(port, name, host, "/").unwrap().reply.text();
    assert_eq!(text("b.example", "b.example"), "b");
    assert_eq!(text("b.example", "unknown.example"), "default");
    assert_eq!(text("c.example", "unknown.example"), "default");
    assert_eq!(text("unknown.example", "b.example"), "b");
}

#[test]
fn an_address_with_one_server_has_one_set_of_rules_whatever_the_names() {
    let (site, ..) = site();
    let c = Certificate::of("c.example");
    c.write(&site, "c");
    let http = "server { listen 127.0.0.1:%PORT% ssl; server_name a.example; ssl_certificate a.crt; ssl_certificate_key a.key;
        ssl_verify_client on; ssl_client_certificate c.crt; ssl_crl \"\"; return 200 $ssl_client_verify; }";
    let server = Server::start_on(site, "", http);
    let client = TlsClient::new(Some(&c));
    let port = server.site().port(0);
    let seen = client
        .get_of(port, "a.example", "other.example", "/")
        .unwrap();
    assert_eq!(
        (seen.reply.status, seen.reply.text().as_str()),
        (200, "SUCCESS")
    );
}
