//! The files of the container images, run as a container runtime runs them: as another user than root, with the output as the log, ended by
//! the image's signal. First with Debian's files around them and the entrypoint, then with the libraries of the program alone.
//!
//! Not here: the building of images, which needs a daemon and a registry.

use super::machine::Machine;
use super::{Order, serves};
use crate::package::output;
use std::process::Command;
use std::time::Instant;

/// The user of the images, and what it may not have.
const USER: &str =
    "setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set=-all";
/// A template as users of nginx's image have them, in the place of the image's own server.
const TEMPLATE: &str =
    "server { listen ${PORT}; location / { return 200 \"filled in: ${WORD}, uri $uri\"; } }\n";

/// Runs both.
pub fn run(order: &Order, machine: &Machine) -> Result<(), String> {
    with_debian(order, machine)?;
    alone(order, machine)
}

fn lay_out(order: &Order, root: &std::path::Path) -> Result<(), String> {
    let script = order.project.join("packaging/container/layout");
    output(Command::new(script).arg(root).current_dir(&order.project))?;
    Ok(())
}

fn with_debian(order: &Order, machine: &Machine) -> Result<(), String> {
    let start = Instant::now();
    lay_out(order, &machine.root)?;
    let entrypoint = order.project.join("packaging/container/entrypoint");
    machine.copy(&entrypoint, "/docker-entrypoint.sh")?;
    machine.run("mkdir -p /etc/nginx/templates /docker-entrypoint.d")?;
    machine.write("/etc/nginx/templates/default.conf.template", TEMPLATE)?;
    machine.write("/docker-entrypoint.d/10-word.envsh", "export WORD=word\n")?;
    machine.run("chmod 755 /docker-entrypoint.d/10-word.envsh")?;
    let command = format!(
        "PORT=8081 {USER} /docker-entrypoint.sh freewheel -c /etc/nginx/nginx.conf -g 'daemon off;'"
    );
    begin(machine, &command)?;
    serves(machine, 8081, "filled in: word, uri /")?;
    end(machine)?;
    println!(
        "{:>6.1} s  the image's files with Debian's: serve as user 65532, templates filled in",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn alone(order: &Order, machine: &Machine) -> Result<(), String> {
    let start = Instant::now();
    let root = machine.root.join("image");
    std::fs::create_dir_all(&root).map_err(|error| error.to_string())?;
    lay_out(order, &root)?;
    // What the image below has: the libraries of C, the links of /dev, a directory for temporary files.
    machine.run(
        "mkdir -m 1777 /image/tmp; mkdir /image/dev /image/proc; mount --bind /dev /image/dev; mount --bind /proc /image/proc; \
         for file in $(ldd /usr/sbin/freewheel | grep -o '/[^ ]*'); do cp --parents -L \"$file\" /image; done",
    )?;
    let command = "chroot --userspec=65532:65532 /image /usr/sbin/freewheel -c /etc/nginx/nginx.conf -g 'daemon off;'";
    begin(machine, command)?;
    serves(machine, 8080, super::PAGE)?;
    end(machine)?;
    machine.run("umount /image/dev /image/proc")?;
    println!(
        "{:>6.1} s  the image's files alone: serve as user 65532",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Starts a command as a container's first process, its output going to a pipe.
fn begin(machine: &Machine, command: &str) -> Result<(), String> {
    machine.write(
        "/root/command",
        &format!("({command}; echo $? >/root/status) 2>&1 | cat >/root/output\n"),
    )?;
    machine.run("rm -f /root/status; setsid sh /root/command </dev/null >/dev/null 2>&1 &")?;
    Ok(())
}

/// Ends it by the image's signal: the log has lines, and the status is 0.
fn end(machine: &Machine) -> Result<(), String> {
    machine.run("kill -QUIT $(pgrep -o -x freewheel)")?;
    machine.until("the server ends", "test -s /root/status")?;
    let (status, log) = (
        machine.run("cat /root/status")?,
        machine.run("cat /root/output")?,
    );
    match status.trim() == "0" && log.contains("\"GET / HTTP/1.1\" 200") {
        true => Ok(()),
        false => Err(format!("ended with {status}, and its output was:\n{log}")),
    }
}
