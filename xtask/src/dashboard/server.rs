//! The server whose dashboard is looked at: two loops, a cache in front of a server of its own, a pool that can be held, a location
//! that keeps its loop, and one of each kind that has a panel of its own (limits, compression, passwords, sub-requests, proxies).

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::PATIENCE;
use crate::running;

/// Files that it has.
pub const FILES: usize = 200;
/// What a user's line says of the password `secret`.
const USER: &str = "user:$6$freewheel$c/WUk6UM1U.uJpqFInmbtpuEltF70JvKZbEsc9L3Vmr0dHh4PjFPslX7wFVUYKyQe11Ph/ebyivGArzKEzqwY0\n";

/// Ends with this value.
pub struct Server {
    child: Child,
    directory: PathBuf,
}

impl Server {
    /// Starts it, with its files in `directory`.
    pub fn start(binary: &Path, directory: &Path, port: u16) -> Result<Server, String> {
        prepare(directory, port)?;
        let child = Command::new(binary)
            .arg("-p")
            .arg(format!("{}/", directory.display()))
            .args(["-c", "nginx.conf", "-e", "logs/error.log"])
            .env("FREEWHEEL_DEBUG_HOLD", directory.join("hold"))
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut server = Server {
            child,
            directory: directory.to_owned(),
        };
        let log = || log_in(directory);
        running::listens(&mut server.child, port, PATIENCE, log)?;
        Ok(server)
    }

    /// Where its files are.
    pub fn files(&self) -> PathBuf {
        self.directory.join("files")
    }

    /// What its error log says.
    pub fn log(&self) -> String {
        log_in(&self.directory)
    }

    /// Pools stand still from now on.
    pub fn hold_pools(&self) -> Result<(), String> {
        std::fs::write(self.directory.join("hold"), "").map_err(|error| error.to_string())
    }

    /// They go on.
    pub fn release_pools(&self) {
        // Gone already: well.
        let _ = std::fs::remove_file(self.directory.join("hold"));
    }
}

fn log_in(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("logs/error.log")).unwrap_or_default()
}

/// The workers of a server stand still as long as this lives.
pub struct Still(Vec<Pid>);

impl Server {
    /// Its workers stand still, as those of a machine that hangs.
    pub fn stand_still(&self) -> Result<Still, String> {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).map_err(|error| error.to_string())?;
        let workers = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        let workers: Vec<Pid> = workers.map(Pid::from_raw).collect();
        for worker in &workers {
            kill(*worker, Signal::SIGSTOP).map_err(|error| error.to_string())?;
        }
        Ok(Still(workers))
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        for worker in &self.0 {
            let _ = kill(*worker, Signal::SIGCONT);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}

fn prepare(directory: &Path, port: u16) -> Result<(), String> {
    let (files, cache) = (directory.join("files"), directory.join("cache"));
    let make = || {
        for directory in [&files, &cache, &directory.join("logs")] {
            std::fs::create_dir(directory)?;
        }
        for number in 0..FILES {
            let bytes = vec![b'x'; 20_000 + number * 500];
            std::fs::write(files.join(number.to_string()), bytes)?;
        }
        std::fs::write(directory.join("users"), USER)?;
        for directory in [directory, &cache] {
            std::fs::set_permissions(directory, PermissionsExt::from_mode(0o777))?;
        }
        Ok(())
    };
    make().map_err(|error: std::io::Error| error.to_string())?;
    let proxied = port.checked_add(2).ok_or("--port: too large")?;
    let text = configuration(directory, port, port + 1, proxied);
    std::fs::write(directory.join("nginx.conf"), text).map_err(|error| error.to_string())
}

fn configuration(directory: &Path, port: u16, origin: u16, proxied: u16) -> String {
    let name = directory.display();
    format!(
        "daemon off; pid nginx.pid; error_log logs/error.log warn; worker_processes 2; thread_pool held threads=2; thread_pool disk threads=8;\nevents {{ }}\n\
         http {{ access_log off; root {name}/files; aio threads=disk;\n\
         proxy_cache_path {name}/cache levels=1:2 keys_zone=cache:8m max_size=8m;\n\
         limit_req_zone $arg_key zone=rate:1m rate=20r/s; limit_conn_zone $arg_key zone=few:1m;\n\
         upstream origin {{ server 127.0.0.1:{origin}; }}\n\
         server {{ listen 127.0.0.1:{port}; status_zone site; location = /dashboard {{ dashboard; }}\n\
         location = /status.json {{ status_json; }} location = /keep {{ keep_loop 50; }}\n\
         location = /held {{ aio threads=held; alias /proc/self/limits; }} location / {{ }}\n\
         location /cached/ {{ proxy_pass http://origin/; proxy_cache cache; proxy_cache_valid 200 3s; }}\n\
         location /limited/ {{ limit_req zone=rate burst=5; limit_conn few 2; alias {name}/files/; }}\n\
         location /packed/ {{ gzip on; brotli on; zstd on; gzip_http_version 1.0; gzip_types *; brotli_types *; zstd_types *; alias {name}/files/; }}\n\
         location /closed/ {{ auth_basic closed; auth_basic_user_file {name}/users; alias {name}/files/; }}\n\
         location /put-together/ {{ add_before_body /1; addition_types *; mirror /mirrored/x; mirror /2; alias {name}/files/; }}\n\
         location /mirrored/ {{ return 503; }} }}\n\
         server {{ listen 127.0.0.1:{proxied} proxy_protocol; status_zone proxied; set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol; }}\n\
         server {{ listen 127.0.0.1:{origin}; }} }}\n"
    )
}
