//! Bare connections: what is sent is what the test says, and what comes is looked at as it is.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::PATIENCE;

/// One connection, with what has been read of it and not used.
pub struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A request as it came to the downstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
    /// The body came to its end.
    pub is_whole: bool,
}

/// An answer as it came to the client.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: String,
    pub is_whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// How often a header is there.
    pub fn count(&self, name: &str) -> usize {
        lines(&self.head).filter(|(have, _)| have.eq_ignore_ascii_case(name)).count()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    lines(head).find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn lines(head: &str) -> impl Iterator<Item = (&str, &str)> {
    head.lines().skip(1).filter_map(|line| line.split_once(": "))
}

impl Wire {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("connect");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, read: Vec::new() }
    }

    /// Sends; that the other side has closed meanwhile is for the reader to see.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        let writing = self.stream.write_all(bytes);
        timeout(PATIENCE, writing).await.expect("taken in time").is_ok()
    }

    /// The same to a reader that takes its time.
    pub async fn write_patiently(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Sends in pieces of one byte, each in a packet of its own.
    pub async fn drip(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if !self.write(&[*byte]).await {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    pub async fn close_writing(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Closes so that the other side is told at once.
    pub fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    /// Waits for the end of the connection; what came until then.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await > 0 {}
        std::mem::take(&mut self.read)
    }

    pub async fn is_closed(&mut self) -> bool {
        self.rest().await.is_empty()
    }

    /// Whether something has come, without waiting.
    pub fn has_more(&mut self) -> bool {
        self.read.reserve(1 << 10);
        let _ = self.stream.try_read_buf(&mut self.read);
        !self.read.is_empty()
    }

    /// More bytes, or none at the end, however it came.
    pub async fn fill(&mut self) -> usize {
        self.read.reserve(64 << 10);
        let reading = self.stream.read_buf(&mut self.read);
        timeout(PATIENCE, reading).await.expect("more in time").unwrap_or(0)
    }

    /// Reads and forgets so many bytes.
    pub async fn skip(&mut self, mut len: usize) -> bool {
        while len > 0 {
            if self.read.is_empty() && self.fill().await == 0 {
                return false;
            }
            let part = len.min(self.read.len());
            self.read.drain(..part);
            len -= part;
        }
        true
    }

    /// The kind of the next HTTP/2 frame, and the first byte of what it holds.
    pub async fn frame(&mut self) -> Option<(u8, Option<u8>)> {
        const HEAD_BYTES: usize = 9;
        loop {
            if let [a, b, c, kind, ..] = self.read[..] {
                let len = HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
                if self.read.len() >= len {
                    let first = self.read[HEAD_BYTES..len].first().copied();
                    self.read.drain(..len);
                    return Some((kind, first));
                }
            }
            if self.fill().await == 0 {
                return None;
            }
        }
    }

    /// All up to the blank line, and that.
    pub async fn head(&mut self) -> Option<String> {
        loop {
            let end = self.read.windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(end) = end {
                let head: Vec<u8> = self.read.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            if self.fill().await == 0 {
                return None;
            }
        }
    }

    /// The next request; none at the connection's end.
    pub async fn request(&mut self) -> Option<Seen> {
        let head = self.head().await?;
        let (body, _, is_whole) = self.body(&head, Some(0)).await;
        Some(Seen { head, body, is_whole })
    }

    /// The final answer to a request with this method; what comes before it is passed over.
    pub async fn answer(&mut self, method: &str) -> Option<Answer> {
        loop {
            let head = self.head().await?;
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
            let status: u16 = status.expect("a status line");
            if status < 200 {
                continue;
            }
            let (body, trailers, is_whole) = match method == "HEAD" || [204, 304].contains(&status)
            {
                true => (Vec::new(), String::new(), true),
                false => self.body(&head, None).await,
            };
            return Some(Answer { status, head, body, trailers, is_whole });
        }
    }

    /// A body, its trailers and whether it came to its end. `otherwise` is its length where the
    /// head tells none; up to the connection's end if that is not known either.
    async fn body(&mut self, head: &str, otherwise: Option<usize>) -> (Vec<u8>, String, bool) {
        if header(head, "transfer-encoding").is_some() {
            return self.chunks().await;
        }
        let told = header(head, "content-length").map(|len| len.parse().expect("a length"));
        let Some(len) = told.or(otherwise) else {
            return (self.rest().await, String::new(), true);
        };
        while self.read.len() < len && self.fill().await > 0 {}
        let is_whole = self.read.len() >= len;
        let body = self.read.drain(..len.min(self.read.len())).collect();
        (body, String::new(), is_whole)
    }

    async fn chunks(&mut self) -> (Vec<u8>, String, bool) {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line().await else { return (body, String::new(), false) };
            let size = line.split(';').next().unwrap_or_default().trim();
            let len = usize::from_str_radix(size, 16).expect("a size");
            if len == 0 {
                break;
            }
            while self.read.len() < len + 2 && self.fill().await > 0 {}
            if self.read.len() < len + 2 {
                body.append(&mut self.read);
                return (body, String::new(), false);
            }
            body.extend(self.read.drain(..len));
            self.read.drain(..2);
        }
        let mut trailers = String::new();
        loop {
            match self.line().await {
                None => return (body, trailers, false),
                Some(line) if line.is_empty() => return (body, trailers, true),
                Some(line) => trailers = trailers + &line + "\n",
            }
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.read.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.fill().await == 0 {
                return None;
            }
        }
    }
}

/// A downstream that does with each connection what the test says.
pub struct Stub {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Mutex<usize>>,
    serving: JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Where a stub notes the requests that it has read.
#[derive(Clone)]
pub struct Notes(Arc<Mutex<Vec<Seen>>>);

impl Notes {
    pub fn add(&self, seen: Seen) {
        self.0.lock().expect("lock").push(seen);
    }
}

impl Stub {
    pub async fn start<F>(serve: impl Fn(Wire, Notes, usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_at(([127, 0, 0, 1], 0).into(), serve).await
    }

    /// `serve` is told which connection it is, from 0.
    pub async fn start_at<F>(
        address: SocketAddr,
        serve: impl Fn(Wire, Notes, usize) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let socket = TcpListener::bind(address).await.expect("bind");
        let address = socket.local_addr().expect("bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let (notes, count) = (Notes(Arc::clone(&seen)), Arc::clone(&connections));
        let serving = tokio::spawn(async move {
            // Ended with this task.
            let mut tasks = JoinSet::new();
            loop {
                let (stream, _) = socket.accept().await.expect("accept");
                stream.set_nodelay(true).expect("no delay");
                let number = {
                    let mut count = count.lock().expect("lock");
                    *count += 1;
                    *count - 1
                };
                tasks.spawn(serve(Wire { stream, read: Vec::new() }, notes.clone(), number));
            }
        });
        Self { address, seen, connections, serving }
    }

    /// Reads requests and says the same to each, however often.
    pub async fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<Vec<u8>> = Arc::new(answer.into());
        Self::start(move |mut wire, notes, _| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(seen) = wire.request().await {
                    let is_whole = seen.is_whole;
                    notes.add(seen);
                    if is_whole {
                        wire.write(&answer).await;
                    }
                }
            }
        })
        .await
    }

    /// Says it once on each connection and closes that.
    pub async fn saying_once(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<Vec<u8>> = Arc::new(answer.into());
        Self::start(move |mut wire, notes, _| {
            let answer = Arc::clone(&answer);
            async move {
                if let Some(seen) = wire.request().await {
                    notes.add(seen);
                    wire.write(&answer).await;
                }
            }
        })
        .await
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("lock").clone()
    }

    pub fn connections(&self) -> usize {
        *self.connections.lock().expect("lock")
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// An address where nobody listens.
pub async fn nowhere() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    socket.local_addr().expect("bound")
}

/// Long enough to see that something does not happen.
pub const A_WHILE: Duration = Duration::from_millis(100);

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
