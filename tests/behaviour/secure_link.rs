//! `secure_link`: links that are made with a secret.

use blackbox::Server;

#[test]
fn a_link_is_good_until_it_runs_out() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location / { secure_link $arg_hash,$arg_time; secure_link_md5 secret$uri$arg_time;
                 return 200 [$secure_link][$secure_link_expires]; }
             location /forever { secure_link $arg_hash; secure_link_md5 secret$uri; return 200 [$secure_link][$secure_link_expires]; }
             location /half { secure_link $arg_hash; return 200 [$secure_link]; } }",
    );
    let ask = |target: &str| server.get(target).text();
    // openssl md5 -binary | base64 | tr +/ -_ | tr -d = of "secret/a2147483647", "secret/a1", "secret/forever"
    let late = "LwPexcBH0RDaE9cM_MNLJA";
    let early = "jm1xD0lxfliHQsbllbxAdQ";
    let forever = "0vEnoZu7vB1vn6cT60g_KQ";
    assert_eq!(
        ask(&format!("/a?hash={late}&time=2147483647")),
        "[1][2147483647]"
    );
    assert_eq!(
        ask(&format!("/a?hash={late}==&time=2147483647")),
        "[1][2147483647]"
    );
    assert_eq!(
        ask(&format!("/b?hash={late}&time=2147483647")),
        "[][2147483647]"
    );
    assert_eq!(
        ask(&format!("/a?hash={late}&time=2147483646")),
        "[][2147483646]"
    );
    assert_eq!(ask(&format!("/a?hash={early}&time=1")), "[0][1]");
    assert_eq!(ask(&format!("/forever?hash={forever}")), "[1][]");
    for wrong in [
        "/a",
        "/a?hash=x",
        "/a?hash=x&time=1x",
        "/a?time=0",
        "/half?hash=x",
    ] {
        assert!(ask(wrong).starts_with("[]"), "{wrong}");
    }
}

#[test]
fn the_older_way_has_the_hash_in_the_path() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; secure_link $arg_hash; secure_link_md5 $uri;
             location /p/ { secure_link_secret segredo; return 200 [$secure_link];
                 location /p/inner/ { secure_link_md5 x; return 200 [$secure_link]; } } }",
    );
    let ask = |target: &str| server.get(target).text();
    assert_eq!(ask("/p/fb43feefb3c0a5825a5ec7e1240d604a/link"), "[link]");
    assert_eq!(ask("/p/fb43feefb3c0a5825a5ec7e1240d604a/other"), "[]");
    assert_eq!(ask("/p/link"), "[]");
    assert_eq!(ask("/p/inner/fb43feefb3c0a5825a5ec7e1240d604a/link"), "[]");
}
