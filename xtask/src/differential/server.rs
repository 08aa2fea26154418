//! One case at one server: its directory, its origins, the server's start, all that is asked, its end.
//!
//! Both servers run in the same directory and on the same ports, one after the other, so that nothing that they say can differ for
//! that. Invariant: no process outlives the call that started it.

use super::answer::{told, visible};
use super::case::{Case, File, Kind, Question, Step};
use super::origin::Origin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The title of the one part that there is when a server refuses its configuration.
pub const REFUSED: &str = "the configuration is refused";
/// How many ports a case has.
pub const PORTS: u16 = 8;
/// Where among them the origins listen; nobody ever listens on the last.
const ORIGINS: [u16; 2] = [4, 5];
const START_MAX: Duration = Duration::from_secs(10);
const STOP_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_millis(2);
/// Time for a held request to come to where it is held.
const HELD: Duration = Duration::from_millis(80);
/// When every file was changed last: a Monday of 2024.
const CHANGED: u64 = 1_704_099_600;

/// Around what the case says.
const HEAD: &str = "daemon off;
user root;
worker_processes 1;
pid <dir>/server.pid;
events { worker_connections 256; }
";
/// Before the case's lines in `http`.
const HTTP: &str =
    "log_format differential '$remote_addr $remote_user \"$request\" $status \"$http_referer\"';
access_log <dir>/logs/access.log differential;
client_body_temp_path <dir>/temp/body;
proxy_temp_path <dir>/temp/proxy;
fastcgi_temp_path <dir>/temp/fastcgi;
uwsgi_temp_path <dir>/temp/uwsgi;
scgi_temp_path <dir>/temp/scgi;
";

/// Where a case runs.
pub struct Place {
    /// Its directory, made anew for each run.
    pub directory: PathBuf,
    /// The first of [`PORTS`].
    pub port: u16,
}

/// What came of a case: parts with a title each.
pub type Told = Vec<(String, String)>;

/// Runs a case at the server `binary`.
pub fn run(case: &Case, binary: &Path, place: &Place) -> Result<Told, String> {
    prepare(case, place).map_err(|error| format!("{}: {error}", place.directory.display()))?;
    let origin = |number: usize| {
        let mine = case.answers.iter().filter(|answer| answer.origin == number);
        let answers: Vec<_> = mine.collect();
        Origin::start(place.port + ORIGINS[number], case.speech[number], &answers)
    };
    let origins = [origin(0)?, origin(1)?];
    let mut server = match start(binary, place)? {
        Started::Running(server) => server,
        Started::Refused(message) => {
            return Ok(vec![(REFUSED.to_owned(), message)]);
        }
    };
    let asked = ask(case, place);
    stop(&mut server)?;
    let mut told = asked?;
    for (number, origin) in origins.iter().enumerate() {
        let came = origin
            .came()
            .iter()
            .map(|request| visible(request))
            .collect::<Vec<_>>();
        told.push((
            format!("what came to origin {}", number + 1),
            came.join("\n"),
        ));
    }
    told.push(("logs".to_owned(), logs(place)));
    told.push(("files".to_owned(), tree(&place.directory.join("www"))));
    Ok(told)
}

/// The last lines of the server's error log, for the report.
pub fn error_log(place: &Place) -> String {
    let log = std::fs::read_to_string(place.directory.join("logs/error.log")).unwrap_or_default();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| !line.contains("[notice]"))
        .collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

fn prepare(case: &Case, place: &Place) -> std::io::Result<()> {
    let directory = &place.directory;
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    for name in ["www", "logs", "temp"] {
        std::fs::create_dir_all(directory.join(name))?;
    }
    for file in &case.files {
        write(directory, file)?;
    }
    let text = format!("{}{HEAD}http {{\n{HTTP}{}}}\n", case.main, case.http);
    std::fs::write(directory.join("server.conf"), placed(&text, place))
}

/// The text with places and ports put in.
fn placed(text: &str, place: &Place) -> String {
    let mut text = text.replace("<dir>", &place.directory.display().to_string());
    let names = [
        "<port>",
        "<port2>",
        "<port3>",
        "<port4>",
        "<origin>",
        "<origin2>",
        "<port5>",
        "<dead>",
    ];
    for (name, port) in names.iter().zip(place.port..) {
        text = text.replace(name, &port.to_string());
    }
    text
}

fn write(directory: &Path, file: &File) -> std::io::Result<()> {
    let path = directory.join(&file.path);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match &file.kind {
        Kind::Bytes(bytes) => std::fs::write(&path, bytes)?,
        Kind::Directory => std::fs::create_dir_all(&path)?,
        Kind::Link(target) => return std::os::unix::fs::symlink(target, &path),
    }
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(CHANGED);
    std::fs::File::open(&path)?.set_modified(changed)
}

enum Started {
    Running(Child),
    Refused(String),
}

fn start(binary: &Path, place: &Place) -> Result<Started, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", binary.display());
    let directory = &place.directory;
    let errors = std::fs::File::create(directory.join("standard-error")).map_err(fault)?;
    let mut command = Command::new(binary);
    command.args([
        "-p",
        &format!("{}/", directory.display()),
        "-c",
        "server.conf",
        "-e",
        "logs/error.log",
    ]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors);
    let mut server = command.spawn().map_err(fault)?;
    let until = Instant::now() + START_MAX;
    while Instant::now() < until {
        if std::fs::read_to_string(directory.join("server.pid"))
            .is_ok_and(|pid| pid.ends_with('\n'))
        {
            return Ok(Started::Running(server));
        }
        if server.try_wait().map_err(fault)?.is_some() {
            let errors =
                std::fs::read_to_string(directory.join("standard-error")).map_err(fault)?;
            return Ok(Started::Refused(refusal(&errors)));
        }
        std::thread::sleep(TICK);
    }
    drop(server.kill());
    drop(server.wait());
    Err(format!("{} does not start", binary.display()))
}

/// The first line that says why, from its level on.
fn refusal(errors: &str) -> String {
    let said = errors
        .lines()
        .find_map(|line| line.find("[emerg]").map(|at| &line[at..]));
    said.unwrap_or(errors).to_owned()
}

fn stop(server: &mut Child) -> Result<(), String> {
    let pid = Pid::from_raw(i32::try_from(server.id()).map_err(|error| error.to_string())?);
    kill(pid, Signal::SIGQUIT).map_err(|error| error.to_string())?;
    let until = Instant::now() + STOP_MAX;
    while Instant::now() < until {
        if server
            .try_wait()
            .map_err(|error| error.to_string())?
            .is_some()
        {
            return Ok(());
        }
        std::thread::sleep(TICK);
    }
    // Its worker goes with it, or when its sockets fail; a case that comes to this is told.
    kill(pid, Signal::SIGTERM).map_err(|error| error.to_string())?;
    std::thread::sleep(HELD);
    drop(server.kill());
    drop(server.wait());
    Err("does not leave on QUIT".to_owned())
}

fn ask(case: &Case, place: &Place) -> Result<Told, String> {
    let mut told = Told::new();
    let mut held = Vec::new();
    for step in &case.steps {
        match step {
            Step::Ask(question) => {
                let stream = send(question, place)?;
                told.push((question.label.clone(), receive(stream, question)));
            }
            Step::Hold(question) => {
                held.push((send(question, place)?, question));
                std::thread::sleep(HELD);
            }
            Step::Wait(time) => std::thread::sleep(*time),
            Step::Write(file) => {
                write(&place.directory, file).map_err(|error| format!("{}: {error}", file.path))?
            }
            Step::Remove(path) => std::fs::remove_file(place.directory.join(path))
                .map_err(|error| format!("{path}: {error}"))?,
        }
    }
    for (stream, question) in held {
        told.push((question.label.clone(), receive(stream, question)));
    }
    Ok(told)
}

fn send(question: &Question, place: &Place) -> Result<TcpStream, String> {
    let port = place.port + question.port as u16;
    let fault = |error: std::io::Error| format!("port {port}: {error}");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(fault)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(fault)?;
    let bytes = placed_bytes(&question.bytes, place);
    // A server may have answered and closed before all was sent.
    drop(stream.write_all(&bytes));
    Ok(stream)
}

/// As [`placed`], for bytes that need not be text.
fn placed_bytes(bytes: &[u8], place: &Place) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(text) => placed(text, place).into_bytes(),
        Err(_) => bytes.to_vec(),
    }
}

fn receive(mut stream: TcpStream, question: &Question) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    let mut remark = "";
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(_) => {
                remark = "(the connection stays open)\n";
                break;
            }
        }
    }
    let now = SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |time| time.as_secs() as i64);
    told(&bytes, question.is_head, now) + remark
}

/// The access logs, by name.
fn logs(place: &Place) -> String {
    let mut out = String::new();
    for path in entries(&place.directory.join("logs")) {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if name != "error.log" {
            let text = std::fs::read(&path).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            out.push_str(&format!("{name}:\n{}", visible(&text)));
        }
    }
    out
}

/// What lies below `directory`, with contents.
fn tree(directory: &Path) -> String {
    let mut out = String::new();
    for path in entries(directory) {
        out.push_str(&format!("{}\n", path.display()));
        if path.is_dir() && !path.is_symlink() {
            out.push_str(&tree(&path));
        } else if let Ok(text) = std::fs::read(&path) {
            out.push_str(&visible(&text[..text.len().min(512)]));
        }
    }
    out
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
