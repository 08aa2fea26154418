//! The configurations that packages, images and examples bring pass `-t`.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests have no event loop, and a failure is a panic"
)]

use std::path::{Path, PathBuf};

use blackbox::{Site, is_nginx};

/// Places of an installation, and where they are below the test's directory.
const PLACES: &[(&str, &str)] = &[
    ("/run/freewheel.pid", "%DIR%/freewheel.pid"),
    ("/tmp/", "%DIR%/temp-"),
    ("/dev/stderr", "%DIR%/logs/error.log"),
    ("/dev/stdout", "%DIR%/logs/access.log"),
    ("/var/log/freewheel", "%DIR%/logs"),
    ("/var/cache/freewheel", "%DIR%/cache"),
    ("user freewheel;", "user root;"),
    ("listen 80 ", "listen %PORT% "),
    ("listen 8080;", "listen %PORT%;"),
    ("listen 9145;", "listen %PORT1%;"),
    // Names that only a cluster knows.
    ("origin.default.svc.cluster.local", "127.0.0.1"),
];

fn project(name: &str) -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    project.join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(project(name)).expect(name)
}

/// A site with a file below its directory, the places of an installation replaced.
fn put(site: &Site, name: &str, text: &str) {
    let mut text = text.to_owned();
    for (from, to) in PLACES {
        text = text.replace(from, to);
    }
    let path = site.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, site.fill(&text)).unwrap();
}

/// A site with the configuration of a package or an image, and with the files beside it.
fn site(configuration: &str) -> Site {
    let site = Site::new();
    put(&site, "nginx.conf", &text(configuration));
    std::fs::create_dir(site.path("cache")).unwrap();
    for name in [
        "mime.types",
        "fastcgi.conf",
        "fastcgi_params",
        "scgi_params",
        "uwsgi_params",
    ] {
        put(&site, name, &text(&format!("conf/{name}")));
    }
    put(&site, "proxy_params", &text("packaging/etc/proxy_params"));
    site
}

fn passes(site: &Site, what: &str) {
    let (status, said) = site.run(&["-t"]);
    assert!(status.success(), "{what}: {said}");
    assert!(!said.contains("[warn]"), "{what}: {said}");
}

#[test]
fn the_package_s_configuration_passes_also_with_its_comments_turned_on() {
    if is_nginx() {
        return;
    }
    let site = site("packaging/etc/freewheel.conf");
    put(
        &site,
        "sites-enabled/default",
        &text("packaging/etc/default-site"),
    );
    passes(&site, "as it is");
    let main = on(&text("packaging/etc/freewheel.conf"));
    put(&site, "nginx.conf", &main);
    let server = text("packaging/etc/default-site");
    // TLS needs a certificate, IPv6 a machine that has it.
    let server: String = on(&server)
        .lines()
        .filter(|line| !line.contains("ssl") && !line.contains("[::]"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(
        server.contains("\n    location /app/ {\n") && main.contains("\n    proxy_cache_path ")
    );
    put(&site, "sites-enabled/default", &server);
    passes(&site, "with its comments turned on");
}

/// The text with commented directives turned on: those lines that end as directives and blocks do.
fn on(text: &str) -> String {
    let line = |line: &str| {
        let Some(rest) = line.strip_prefix("    # ") else {
            return format!("{line}\n");
        };
        let code = rest.split("    #").next().unwrap().trim_end();
        let is_code = code.ends_with(';') || code.ends_with('{') || code.ends_with('}');
        let is_shell = rest.contains('`');
        match is_code && !is_shell {
            true => format!("    {rest}\n"),
            false => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

#[test]
fn the_images_configuration_passes() {
    if is_nginx() {
        return;
    }
    let site = site("packaging/container/freewheel.conf");
    put(
        &site,
        "conf.d/default.conf",
        &text("packaging/container/default.conf"),
    );
    passes(&site, "the image's");
}

/// The block of text behind a line of YAML that ends with `KEY: |`.
fn block(yaml: &str, key: &str) -> String {
    let (before, rest) = yaml.split_once(&format!("{key}: |\n")).expect(key);
    let indent = before.rsplit('\n').next().unwrap().len();
    let is_inside = |line: &&str| line.trim().is_empty() || line[..=indent].trim().is_empty();
    let lines = rest.lines().take_while(is_inside);
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

#[test]
fn the_examples_configurations_pass() {
    if is_nginx() {
        return;
    }
    let compose = block(&text("contrib/compose/cache.yaml"), "content");
    // What compose and the template fill in.
    let compose = compose
        .replace("$${ORIGIN}", "http://127.0.0.1:1")
        .replace("$${CACHE_SIZE}", "20g")
        .replace("$$", "$");
    for (what, server) in [
        ("compose, cache", compose),
        (
            "kubernetes, static",
            block(&text("contrib/kubernetes/static.yaml"), "default.conf"),
        ),
        (
            "kubernetes, cache",
            block(&text("contrib/kubernetes/cache.yaml"), "default.conf"),
        ),
    ] {
        assert!(
            server.contains("listen 8080;") && server.ends_with("}\n"),
            "{what}: {server}"
        );
        let site = site("packaging/container/freewheel.conf");
        put(&site, "conf.d/default.conf", &server);
        passes(&site, what);
    }
}

/// The output of the image's entrypoint with these scripts and one template, which is printed instead of served.
fn started(scripts: &[(&str, &str)], template: &str) -> String {
    let site = Site::new();
    for name in ["scripts", "templates", "conf.d", "bin"] {
        std::fs::create_dir(site.path(name)).unwrap();
    }
    let mut entrypoint = text("packaging/container/entrypoint");
    for (from, to) in [
        ("/docker-entrypoint.d", "scripts"),
        ("/etc/nginx/templates", "templates"),
        ("/etc/nginx/conf.d", "conf.d"),
    ] {
        assert!(entrypoint.contains(from));
        entrypoint = entrypoint.replace(from, &site.path(to).display().to_string());
    }
    let made = site.path("conf.d/a.conf").display().to_string();
    for (name, script) in scripts {
        let (source, path) = (site.path("source"), site.path(&format!("scripts/{name}")));
        std::fs::write(&source, script.replace("%MADE%", &made)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&source, mode).unwrap();
        // Another process writes it: what this one has open for writing could be inherited, and is not run then.
        let copied = std::process::Command::new("cp")
            .args([source, path])
            .status();
        assert!(copied.unwrap().success());
    }
    std::fs::write(site.path("templates/a.conf.template"), template).unwrap();
    // What an image has by that name may be read only.
    std::fs::write(&made, "of the image\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o444);
    std::fs::set_permissions(&made, mode).unwrap();
    // The words "freewheel FILE" of the command line are a program that prints the file.
    std::os::unix::fs::symlink("/bin/cat", site.path("bin/freewheel")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = std::process::Command::new("sh")
        .args(["-c", &entrypoint, "entrypoint", "freewheel", &made])
        .env("PATH", format!("{}:{path}", site.path("bin").display()))
        .env("NGINX_ENTRYPOINT_QUIET_LOGS", "1")
        .env("NAME", "example.org")
        .env("LINES", "user=me\nhost=db\n uri=no")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_image_fills_templates_between_its_scripts() {
    let has_envsubst = std::process::Command::new("envsubst").output().is_ok();
    if is_nginx() || !has_envsubst {
        return;
    }
    let scripts = [
        ("2-first.envsh", "export EARLY=\"early$UNSET\"\n"),
        ("30-late.envsh", "export LATE=late\n"),
        (
            "40-edit.sh",
            "#!/bin/sh\nsed s/server_name/SERVER_NAME/ %MADE% >%MADE%.new && mv %MADE%.new %MADE%\n",
        ),
    ];
    let template = "server_name ${NAME}; set $a \"$host $uri ${EARLY} ${LATE}\";\n";
    assert_eq!(
        started(&scripts, template),
        "SERVER_NAME example.org; set $a \"$host $uri early ${LATE}\";\n"
    );
}
