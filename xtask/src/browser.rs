//! A headless Chromium, asked over a pair of pipes (the DevTools protocol, `--remote-debugging-pipe`).
//!
//! Invariant: it ends with this value, and its profile with it.

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: String,
    calls: u64,
    /// What it said unasked, so far.
    pub events: Vec<Value>,
}

impl Browser {
    /// Starts it, with its files in `directory`. It reads from descriptor 3 and writes to 4.
    pub fn start(program: &str, directory: &Path) -> Result<Browser, String> {
        let pipes = [directory.join("to"), directory.join("from")];
        for pipe in &pipes {
            nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU)
                .map_err(|error| error.to_string())?;
        }
        let script = "exec \"$1\" --headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe \
                      --user-data-dir=\"$2/profile\" about:blank 3<\"$2/to\" 4>\"$2/from\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh", program])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        // Each is opened for both ways, so that nobody waits for a program that is not there.
        let open = |pipe| OpenOptions::new().read(true).write(true).open(pipe);
        let to = open(&pipes[0]).map_err(|error| error.to_string())?;
        let from = File::open(&pipes[1]).map_err(|error| error.to_string())?;
        let mut browser = Browser {
            child,
            to,
            from: BufReader::new(from),
            session: String::new(),
            calls: 0,
            events: Vec::new(),
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let page = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &page)?;
        browser.session = session["sessionId"].as_str().unwrap_or_default().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Asks for something and waits for the answer.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, String> {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": parameters});
        if !self.session.is_empty() {
            call["sessionId"] = json!(self.session);
        }
        let text = format!("{call}\0");
        self.to
            .write_all(text.as_bytes())
            .map_err(|error| error.to_string())?;
        loop {
            let mut text = Vec::new();
            let count = self
                .from
                .read_until(0, &mut text)
                .map_err(|error| error.to_string())?;
            if count == 0 {
                return Err("the browser has ended".to_owned());
            }
            let told: Value =
                serde_json::from_slice(text.trim_ascii_end().strip_suffix(b"\0").unwrap_or(&text))
                    .map_err(|error| error.to_string())?;
            if told["id"] != self.calls {
                self.events.push(told);
                continue;
            }
            if !told["error"].is_null() {
                return Err(format!("{method}: {}", told["error"]));
            }
            return Ok(told["result"].clone());
        }
    }

    /// What an expression of the page's script comes to.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value, String> {
        let asked = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", &asked)?;
        match answer.get("exceptionDetails") {
            Some(error) => Err(format!("{expression}: {error}")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// What went wrong on the page, and what it asked other places for.
    pub fn faults(&self, own: &str) -> Vec<String> {
        let fault = |event: &Value| {
            let said = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(said.to_string()),
                "Log.entryAdded" if said["entry"]["level"] == "error" => Some(said.to_string()),
                "Runtime.consoleAPICalled" => Some(said.to_string()),
                "Network.requestWillBeSent" => {
                    let url = said["request"]["url"].as_str().unwrap_or_default();
                    let is_own = url.starts_with(own) || url.starts_with("data:");
                    (!is_own).then(|| format!("asks {url}"))
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(fault).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        let _ = self.call("Browser.close", &json!({}));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
