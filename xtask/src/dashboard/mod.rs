//! The dashboard as a browser sees it: load makes charts move, a pool that is held shows its queue, who keeps a loop is named, and
//! the console stays empty.
//!
//! * [`server`]: whose dashboard it is. * [`load`]: what it has to do meanwhile.
//!
//! Needs Chromium (Debian: `apt install chromium`) and a program that is built: freewheel with the module of the tests, which can be told
//! to keep a loop. No freewheel that is installed can.

mod load;
mod server;

use crate::browser::Browser;
use crate::option;
use load::{Load, ask};
use serde_json::{Value, json};
use server::Server;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(200);
/// How long the page gets to draw what it was told.
const PAINTED: Duration = Duration::from_millis(500);
/// Jobs that wait in the held pool.
const HELD: usize = 5;
/// What keeps its loop, for 50 ms.
const CULPRIT: &str = "GET /keep HTTP/1.0";
/// The width of a narrow phone's page.
const PHONE: u32 = 360;
/// Between two of them: a stall is told in the log once a second.
const APART: Duration = Duration::from_millis(1200);

/// What is asked for on the command line.
struct Wishes {
    binary: PathBuf,
    chromium: String,
    port: u16,
    screenshot: Option<String>,
    /// The same on a phone in the dark.
    phone: Option<String>,
    /// The directory for pictures of all widths and lights, calm and in trouble.
    pictures: Option<String>,
    /// How long the load runs before it is looked whether every chart has a line.
    seconds: u64,
}

impl Wishes {
    fn read(project: &Path, arguments: &[String]) -> Result<Wishes, String> {
        let mut arguments = arguments.to_vec();
        let binary = option(&mut arguments, "--binary")?;
        let chromium = option(&mut arguments, "--chromium")?;
        let port = option(&mut arguments, "--port")?;
        let port = port.map_or(Ok(18590), |text| text.parse());
        let screenshot = option(&mut arguments, "--screenshot")?;
        let phone = option(&mut arguments, "--phone")?;
        let pictures = option(&mut arguments, "--pictures")?;
        let seconds = option(&mut arguments, "--seconds")?;
        let seconds = seconds.map_or(Ok(6), |text| text.parse());
        match arguments.first() {
            Some(unknown) => Err(format!("unknown argument {unknown}")),
            None => Ok(Wishes {
                binary: binary
                    .map_or_else(|| project.join("target/debug/told-module"), PathBuf::from),
                chromium: chromium.unwrap_or_else(|| "chromium".to_owned()),
                port: port.map_err(|error| format!("--port: {error}"))?,
                screenshot,
                phone,
                pictures,
                seconds: seconds.map_err(|error| format!("--seconds: {error}"))?,
            }),
        }
    }
}

/// Does it.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let wishes = Wishes::read(project, arguments)?;
    let (chromium, port) = (&wishes.chromium, wishes.port);
    let is_there = Command::new(chromium).arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        return Err(format!(
            "{chromium} cannot be run: Chromium is needed (--chromium PROGRAM)"
        ));
    }
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let server = Server::start(&wishes.binary, directory.path(), port)?;
    let mut browser = Browser::start(chromium, directory.path())?;
    let own = format!("http://127.0.0.1:{port}/dashboard");
    browser.call("Emulation.setScrollbarsHidden", &json!({"hidden": true}))?;
    let size = json!({"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", &size)?;
    browser.call("Page.navigate", &json!({"url": own}))?;
    let seen = look(&mut browser, &server, &wishes);
    server.release_pools();
    seen?;
    let faults = browser.faults(&own);
    if faults.is_empty() {
        println!("nothing on the console, and no other place asked");
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

/// What is to be seen, one after the other.
fn look(browser: &mut Browser, server: &Server, wishes: &Wishes) -> Result<(), String> {
    let port = wishes.port;
    // As the chart's legend says it.
    let rate = "(() => { const text = [...document.querySelectorAll('#panel-requests .legend li')].find((li) => \
                li.querySelector('.name').textContent === 'requests').querySelector('strong').textContent; \
                return parseFloat(text) * (text.includes('k') ? 1000 : 1); })()";
    let quiet = format!("store.times.length > 2 && {rate} < 10");
    wait(browser, &quiet, "without load there are few requests")?;
    let picture = "document.querySelector('#panel-requests canvas').toDataURL()";
    let before = browser.evaluate(picture)?;
    let _load = Load::start(port, &server.files());
    let busy = format!("{rate} > 50 && {picture} !== {before}");
    wait(browser, &busy, "the load moves the chart of requests")?;
    std::thread::sleep(Duration::from_secs(wishes.seconds));
    every_chart_has_a_line(browser)?;
    a_search_leaves_what_has_the_name(browser)?;
    take_all(browser, wishes, "calm")?;
    a_held_pool_shows_its_queue(browser, server, wishes)?;
    who_keeps_a_loop_is_named(browser, server, port)?;
    if let Some(path) = &wishes.screenshot {
        take(browser, path)?;
    }
    keys_move_through_the_past(browser)?;
    it_fits_on_a_phone(browser, wishes)?;
    a_server_that_stands_still_is_told_of(browser, server)
}

/// What the pointer does can be done without one.
fn keys_move_through_the_past(browser: &mut Browser) -> Result<(), String> {
    browser.evaluate("document.querySelector('#panel-requests canvas').focus()")?;
    for (key, code, moved) in [
        ("Home", 36, "cursor === 0"),
        ("ArrowRight", 39, "cursor === 1"),
        ("Escape", 27, "cursor === null"),
    ] {
        let pressed =
            json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code});
        browser.call("Input.dispatchKeyEvent", &pressed)?;
        wait(browser, moved, &format!("the key {key} moves the cursor"))?;
    }
    Ok(())
}

/// No stream ends then: nothing comes.
fn a_server_that_stands_still_is_told_of(
    browser: &mut Browser,
    server: &Server,
) -> Result<(), String> {
    let says = |text: &str| {
        format!(
            "document.getElementById('state').textContent.startsWith({})",
            json!(text)
        )
    };
    let still = server.stand_still()?;
    let silent = says("the server has said nothing for 10 s");
    wait(
        browser,
        &silent,
        "the page says that the server stands still",
    )?;
    drop(still);
    wait(browser, &says("live"), "and that it goes on")
}

/// A narrow one, in the dark.
fn it_fits_on_a_phone(browser: &mut Browser, wishes: &Wishes) -> Result<(), String> {
    let size = json!({"width": PHONE, "height": 740, "deviceScaleFactor": 1, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", &size)?;
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.call("Emulation.setEmulatedMedia", &dark)?;
    let fits = format!(
        "document.documentElement.scrollWidth <= {PHONE} && document.querySelector('canvas').clientWidth > {PHONE} / 2 && \
         getComputedStyle(document.body).backgroundColor === 'rgb(14, 17, 22)'"
    );
    wait(browser, &fits, "it fits on a phone, in the dark")?;
    every_chart_has_a_line(browser)?;
    match &wishes.phone {
        Some(path) => take(browser, path),
        None => Ok(()),
    }
}

/// Opens or closes all sections, and waits until their charts are drawn.
fn set_sections(browser: &mut Browser, is_open: bool) -> Result<(), String> {
    let set = format!(
        "document.querySelectorAll('details').forEach((one) => {{ one.open = {is_open}; }})"
    );
    browser.evaluate(&set)?;
    std::thread::sleep(PAINTED);
    Ok(())
}

/// A name leaves only what has it: a cache's charts, in sections that open by themselves.
fn a_search_leaves_what_has_the_name(browser: &mut Browser) -> Result<(), String> {
    let search = |text: &str| {
        format!(
            "(() => {{ search.value = '{text}'; search.dispatchEvent(new Event('input')); return true; }})()"
        )
    };
    browser.evaluate(&search("cach"))?;
    let is_left = "!document.getElementById('panel-entries').hidden && document.getElementById('section-caches').open && \
                   document.getElementById('panel-queue').hidden && document.getElementById('section-loops').hidden";
    wait(browser, is_left, "a search leaves the charts of a name")?;
    browser.evaluate(&search(""))?;
    let is_back = "!document.getElementById('panel-queue').hidden && !document.getElementById('section-caches').open";
    wait(browser, is_back, "and without it all are there again")
}

/// A picture of each width in each light, of all of the page.
fn take_all(browser: &mut Browser, wishes: &Wishes, state: &str) -> Result<(), String> {
    let Some(directory) = &wishes.pictures else {
        return Ok(());
    };
    for (width, light) in [
        (1280, "light"),
        (1280, "dark"),
        (PHONE, "light"),
        (PHONE, "dark"),
    ] {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE});
        browser.call("Emulation.setDeviceMetricsOverride", &size)?;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": light}]});
        browser.call("Emulation.setEmulatedMedia", &media)?;
        std::thread::sleep(PAINTED);
        take(browser, &format!("{directory}/{state}-{width}-{light}.png"))?;
    }
    let size = json!({"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", &size)?;
    let media = json!({"features": [{"name": "prefers-color-scheme", "value": "light"}]});
    browser.call("Emulation.setEmulatedMedia", &media)?;
    std::thread::sleep(PAINTED);
    Ok(())
}

/// Those of TLS and HTTP/2, which the load does not speak, are left out.
fn every_chart_has_a_line(browser: &mut Browser) -> Result<(), String> {
    set_sections(browser, true)?;
    let hidden = "[...document.querySelectorAll('main canvas')].filter((c) => c.hidden || !c.width).map((c) => c.parentNode.id)
        .filter((id) => !/^panel-(handshakes|handshake-steps|ciphers|certificates|streams|goaways)$/.test(id)).join()";
    let empty = browser.evaluate(hidden)?;
    set_sections(browser, false)?;
    if empty != "" {
        return Err(format!("charts without a line: {empty}"));
    }
    println!("every chart has a line");
    Ok(())
}

fn a_held_pool_shows_its_queue(
    browser: &mut Browser,
    server: &Server,
    wishes: &Wishes,
) -> Result<(), String> {
    let port = wishes.port;
    server.hold_pools()?;
    // It is looked for from time to time.
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
    )?;
    let sentence = "document.querySelector('#wrong .critical').textContent.includes('Jobs wait in pool held, and none ends')";
    wait(
        browser,
        sentence,
        "a sentence on top says that it stands still",
    )?;
    take_all(browser, wishes, "trouble")?;
    server.release_pools();
    let empty = queue.replace(&format!(">= {HELD}"), "=== 0");
    wait(
        browser,
        &empty,
        "and that it is empty when the pool goes on",
    )
}

/// On the page, in the log, and in the ring that `status_json` shows.
fn who_keeps_a_loop_is_named(
    browser: &mut Browser,
    server: &Server,
    port: u16,
) -> Result<(), String> {
    let whose = format!("content, request: \"{CULPRIT}\"");
    let others = server.log().matches(" was kept for ").count();
    println!("stalls that the log names before anybody keeps a loop on purpose: {others}");
    let deadline = Instant::now() + PATIENCE;
    while !server.log().contains(&whose) {
        if Instant::now() > deadline {
            return Err(format!(
                "the log does not name the culprit: {whose}\n{}",
                server.log()
            ));
        }
        ask(port, "/keep");
        std::thread::sleep(APART);
    }
    println!("the log names who kept a loop");
    let answer = ask(port, "/status.json");
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no status_json")?;
    let figures: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let ring = figures["stalls"].as_array().into_iter().flatten();
    let is_it = |stall: &&Value| {
        let is_long = stall["seconds"].as_f64() >= Some(0.05);
        is_long && stall["request"] == CULPRIT && stall["phase"] == "content"
    };
    let it = ring
        .clone()
        .find(is_it)
        .ok_or("status_json does not name the culprit")?;
    println!("the ring names it: {it}");
    let line = format!(
        "[...document.querySelectorAll('#stalls li')].some((li) => \
         /loop \\d+ was kept for \\S+ m?s by connection \\*\\d+, content, /.test(li.textContent) && li.textContent.includes({}))",
        json!(CULPRIT)
    );
    wait(browser, &line, "the page names it")
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
