//! The dashboard as a browser sees it: load makes charts move, a pool that is held shows its queue, and the console stays empty.
//!
//! Needs Chromium (Debian: `apt install chromium`) and a program that is built.

use crate::browser::Browser;
use crate::option;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(200);
/// Clients of the load.
const CLIENTS: usize = 8;
/// Files that they ask for.
const FILES: usize = 200;
/// Jobs that wait in the held pool.
const HELD: usize = 5;

/// The server; ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

/// Does it; `--seconds N` lets the load run longer before the picture (`--screenshot FILE`) is taken.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let binary = option(&mut arguments, "--binary")?
        .map_or_else(|| project.join("target/debug/freewheel"), PathBuf::from);
    let chromium = option(&mut arguments, "--chromium")?.unwrap_or_else(|| "chromium".to_owned());
    let port = option(&mut arguments, "--port")?.unwrap_or_else(|| "18590".to_owned());
    let screenshot = option(&mut arguments, "--screenshot")?;
    let seconds = option(&mut arguments, "--seconds")?.map_or(Ok(6), |text| text.parse::<u64>());
    let seconds = seconds.map_err(|error| format!("--seconds: {error}"))?;
    let port: u16 = port.parse().map_err(|error| format!("--port: {error}"))?;
    if let Some(unknown) = arguments.first() {
        return Err(format!("unknown argument {unknown}"));
    }
    let is_there = Command::new(&chromium).arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        return Err(format!(
            "{chromium} cannot be run: Chromium is needed (--chromium PROGRAM)"
        ));
    }
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let _server = serve(&binary, directory.path(), port)?;
    let mut browser = Browser::start(&chromium, directory.path())?;
    let own = format!("http://127.0.0.1:{port}/dashboard");
    let size = json!({"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", &size)?;
    browser.call("Page.navigate", &json!({"url": own}))?;
    let is_on = Arc::new(AtomicBool::new(true));
    let load: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let is_on = Arc::clone(&is_on);
            std::thread::spawn(move || ask_much(port, client, &is_on))
        })
        .collect();
    let seen = look(&mut browser, directory.path(), port, seconds);
    is_on.store(false, Relaxed);
    let _ = std::fs::remove_file(directory.path().join("hold"));
    load.into_iter().for_each(|thread| drop(thread.join()));
    seen?;
    if let Some(path) = screenshot {
        take(&mut browser, &path)?;
    }
    let faults = browser.faults(&own);
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

/// What is to be seen, one after the other.
fn look(browser: &mut Browser, directory: &Path, port: u16, seconds: u64) -> Result<(), String> {
    let requests = "perSecond(store.find('freewheel_loop_requests')[0]).some((v) => v > 20)";
    wait(browser, requests, "the load moves the chart of requests")?;
    std::thread::sleep(Duration::from_secs(seconds));
    let hidden = "[...document.querySelectorAll('#panels canvas')].filter((c) => c.hidden).map((c) => c.parentNode.id).join()";
    let empty = browser.evaluate(hidden)?;
    if empty != "" {
        return Err(format!("charts without a line: {empty}"));
    }
    println!("every chart has a line");
    std::fs::write(directory.join("hold"), "").map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..HELD {
        std::thread::spawn(move || ask(port, "/held"));
    }
    let queue = format!(
        "[...document.querySelectorAll('#panel-queue .legend li')].some((li) => li.querySelector('.name').textContent === \
         'held read' && Number(li.querySelector('strong').textContent) >= {HELD})"
    );
    wait(
        browser,
        &queue,
        "the panel of the held pool shows its queue",
    )
}

fn wait(browser: &mut Browser, expression: &str, what: &str) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    // The script may not be there yet.
    while !browser
        .evaluate(expression)
        .is_ok_and(|value| value == true)
    {
        if Instant::now() > deadline {
            return Err(format!("not seen: {what}"));
        }
        std::thread::sleep(TICK);
    }
    println!("{what}");
    Ok(())
}

fn take(browser: &mut Browser, path: &str) -> Result<(), String> {
    let asked = json!({"format": "png", "captureBeyondViewport": true});
    let picture = browser.call("Page.captureScreenshot", &asked)?;
    let mut base64 = Command::new("base64");
    let mut child = base64
        .arg("-d")
        .stdin(std::process::Stdio::piped())
        .stdout(std::fs::File::create(path).map_err(|error| error.to_string())?)
        .spawn()
        .map_err(|error| error.to_string())?;
    let text = picture["data"].as_str().unwrap_or_default();
    let mut stdin = child.stdin.take().ok_or("base64 takes nothing")?;
    stdin
        .write_all(text.as_bytes())
        .map_err(|error| error.to_string())?;
    drop(stdin);
    child.wait().map(drop).map_err(|error| error.to_string())
}

fn serve(binary: &Path, directory: &Path, port: u16) -> Result<Server, String> {
    let name = directory.display();
    let files = directory.join("files");
    let cache = directory.join("cache");
    for directory in [&files, &cache, &directory.join("logs")] {
        std::fs::create_dir(directory).map_err(|error| error.to_string())?;
    }
    for number in 0..FILES {
        let written = std::fs::write(
            files.join(format!("{number}")),
            vec![b'x'; 20_000 + number * 500],
        );
        written.map_err(|error| error.to_string())?;
    }
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    for directory in [directory, &cache] {
        std::fs::set_permissions(directory, std::fs::Permissions::clone(&open_to_all))
            .map_err(|error| error.to_string())?;
    }
    let origin = port.checked_add(1).ok_or("--port: too large")?;
    let text = format!(
        "daemon off; pid nginx.pid; worker_processes 2; thread_pool held threads=2; thread_pool disk threads=8;\nevents {{ }}\n\
         http {{ access_log off; root {name}/files; aio threads=disk;\n\
         proxy_cache_path {name}/cache levels=1:2 keys_zone=cache:8m max_size=8m;\n\
         upstream origin {{ server 127.0.0.1:{origin}; }}\n\
         server {{ listen 127.0.0.1:{port}; status_zone site; location = /dashboard {{ dashboard; }}\n\
         location = /held {{ aio threads=held; alias /proc/self/limits; }} location / {{ }}\n\
         location /cached/ {{ proxy_pass http://origin/; proxy_cache cache; proxy_cache_valid 200 3s; }} }}\n\
         server {{ listen 127.0.0.1:{origin}; }} }}\n"
    );
    std::fs::write(directory.join("nginx.conf"), text).map_err(|error| error.to_string())?;
    let child = Command::new(binary)
        .args([
            "-p",
            &format!("{name}/"),
            "-c",
            "nginx.conf",
            "-e",
            "logs/error.log",
        ])
        .env("FREEWHEEL_DEBUG_HOLD", directory.join("hold"))
        .spawn()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let server = Server(child);
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > deadline {
            return Err("the server does not listen".to_owned());
        }
        std::thread::sleep(TICK);
    }
    Ok(server)
}

fn ask_much(port: u16, client: usize, is_on: &AtomicBool) {
    let mut number = client * 31;
    while is_on.load(Relaxed) {
        number = (number * 1_103_515_245 + 12_345) % (1 << 31);
        let file = number / 7 % FILES;
        match number / 3 % 5 {
            0 => ask(port, "/missing"),
            1 | 2 => ask(port, &format!("/{file}")),
            _ => ask(port, &format!("/cached/{file}")),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ask(port: u16, path: &str) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return;
    };
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let asked = stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    let _ = asked.and_then(|()| stream.read_to_end(&mut Vec::new()));
}
