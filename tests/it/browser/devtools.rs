//! A headless Chromium, driven by its DevTools protocol: what it is told, and what it says.
//!
//! What must hold: a browser never outlives its test; every wait ends.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Longer than any page takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events kept between two looks at them.
const EVENTS_MAX: usize = 10_000;

/// Where Debian has it; `FREEHOLD_CHROMIUM` names another one.
fn binary() -> String {
    std::env::var("FREEHOLD_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned())
}

/// One browser with one page open.
pub struct Browser {
    child: Child,
    _profile: tempfile::TempDir,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    next_id: u64,
    events: VecDeque<Value>,
}

/// How a page is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
}

impl Browser {
    /// `None` where there is no Chromium, with a line that says so.
    pub async fn start() -> Option<Self> {
        let profile = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(binary());
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-extensions", "--hide-scrollbars"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--remote-debugging-port=0", "--force-color-profile=srgb"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: {} cannot be started: {error}", binary());
                return None;
            }
        };
        let errors = child.stderr.take().expect("piped");
        let reading = tokio::task::spawn_blocking(move || {
            let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
            let found = lines
                .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
            // What it says later is read, so that it is never stopped by a full pipe.
            std::thread::spawn(move || lines.for_each(drop));
            found
        });
        let address = tokio::time::timeout(PATIENCE, reading).await.expect("it starts in time");
        let address = address.expect("no panic").expect("it says where it listens");
        let (socket, _) = connect_async(&address).await.expect("it takes a connection");
        let mut browser = Self {
            child,
            _profile: profile,
            socket,
            session: String::new(),
            next_id: 0,
            events: VecDeque::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        Some(browser)
    }

    /// Sends a command and waits for its answer; what else comes is kept.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).await.expect("sent");
        loop {
            let told = self.receive().await;
            if told["id"] == json!(id) {
                assert!(told["error"].is_null(), "{method}: {}", told["error"]);
                return told["result"].clone();
            }
        }
    }

    async fn receive(&mut self) -> Value {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            let message = next.expect("it says something in time").expect("it is there");
            let Message::Text(text) = message.expect("a message") else { continue };
            let told: Value = serde_json::from_str(&text).expect("JSON");
            if !told["method"].is_null() {
                self.events.push_back(told.clone());
                assert!(self.events.len() < EVENTS_MAX, "nobody looks at the events");
            }
            return told;
        }
    }

    /// Goes to an address, and waits until all of the page is there.
    pub async fn open(&mut self, url: &str) {
        self.until_loaded("Page.navigate", json!({"url": url})).await;
    }

    async fn until_loaded(&mut self, method: &str, params: Value) {
        let is_load = |event: &Value| event["method"] == "Page.loadEventFired";
        self.events.retain(|event| !is_load(event));
        let told = self.call(method, params).await;
        assert!(told["exceptionDetails"].is_null(), "{}", told["exceptionDetails"]);
        while !self.events.iter().any(is_load) {
            self.receive().await;
        }
    }

    /// Does something in the page that leads to another, and waits for that one.
    pub async fn follow(&mut self, script: &str) {
        let params = json!({"expression": script, "userGesture": true});
        self.until_loaded("Runtime.evaluate", params).await;
    }

    /// The value of an expression, which may be a promise.
    pub async fn value(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let told = self.call("Runtime.evaluate", params).await;
        assert!(told["exceptionDetails"].is_null(), "{script}: {}", told["exceptionDetails"]);
        told["result"]["value"].clone()
    }

    pub async fn look(&mut self, look: Look) {
        let size = json!({"width": look.width, "height": look.height, "deviceScaleFactor": 1,
            "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if look.is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media).await;
    }

    pub async fn press(&mut self, key: &str) {
        let code = if key == "Tab" { 9 } else { 13 };
        for kind in ["keyDown", "keyUp"] {
            let text = if key == "Enter" && kind == "keyDown" { "\r" } else { "" };
            let mut event = json!({"type": kind, "key": key, "code": key,
                "windowsVirtualKeyCode": code});
            if !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// A PNG of what is shown.
    pub async fn picture(&mut self) -> Vec<u8> {
        use base64::Engine as _;
        let told = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        let text = told["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
    }

    /// What went wrong since the last look: errors of the console, exceptions, and requests to any
    /// host but `host`.
    pub fn complaints(&mut self, host: &str) -> Vec<String> {
        let mut found = Vec::new();
        for event in self.events.drain(..) {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => found.push(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if params["type"] == "error" => {
                    found.push(params["args"].to_string());
                }
                "Log.entryAdded" if params["entry"]["level"] == "error" => {
                    found.push(params["entry"].to_string());
                }
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap_or_default();
                    let is_inside =
                        ["data:", "about:", "blob:"].iter().any(|one| url.starts_with(one));
                    if !is_inside && !url.starts_with(&format!("http://{host}/")) {
                        found.push(format!("a request to {url}"));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}
