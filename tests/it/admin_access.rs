//! Who comes to the listener for operators, and what changes something there, with a real process.

use std::net::SocketAddr;

use super::process::{Freehold, http, wait_for};

const TOKEN: &str = "a-token-that-nobody-guesses";

async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    form: &str,
) -> (u16, String) {
    let headers = format!("{headers}Content-Type: application/x-www-form-urlencoded\r\n");
    let answer = http(address, method, path, &headers, form.as_bytes()).await.expect("an answer");
    (answer.0, String::from_utf8(answer.1).expect("text"))
}

/// The token in the forms of a page.
fn token_in(page: &str) -> &str {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
    rest.split('"').next().expect("its value")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_forgotten_by_a_form_of_the_page_and_by_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let freehold = Freehold::start(dir.path(), &["-ingester.lifecycler.ID=one"]).await;
    freehold.wait_ready().await;
    let (_, page) = ask(freehold.admin, "GET", "/ring", "", "").await;
    assert!(page.contains("forget?id=one"), "{page}");
    let (_, page) = ask(freehold.admin, "GET", "/ring/forget?id=one", "", "").await;
    let form = "forget=nobody";
    let browser = "User-Agent: Mozilla/5.0\r\n";
    // On its own listener everything needs the token.
    assert_eq!(ask(freehold.admin, "POST", "/ring", "", form).await.0, 403);
    assert_eq!(ask(freehold.admin, "POST", "/ring", browser, form).await.0, 403);
    let signed = format!("{form}&csrf={}", token_in(&page));
    assert_eq!(ask(freehold.admin, "POST", "/ring", browser, &signed).await.0, 302);
    // Where Cortex has the page, its scripts go on, and browsers need the token of that listener.
    assert_eq!(ask(freehold.http, "POST", "/ring", "", form).await.0, 302);
    assert_eq!(ask(freehold.http, "POST", "/ring", browser, form).await.0, 403);
    assert_eq!(ask(freehold.http, "POST", "/ring", browser, &signed).await.0, 403);
    let (_, page) = ask(freehold.http, "GET", "/ring", "", "").await;
    let signed = format!("{form}&csrf={}", token_in(&page));
    assert_eq!(ask(freehold.http, "POST", "/ring", browser, &signed).await.0, 302);
    let log = freehold.process.log();
    let done = log.lines().find(|line| line.contains("forgotten by an operator")).expect("logged");
    assert!(done.contains("\"who\":\"127.0.0.1:"), "{done}");
    assert!(log.contains("came without its token"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_asked_for_and_its_change_is_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("written");
    let flag = format!("-admin.bearer-token-file={}", file.display());
    let freehold = Freehold::start(dir.path(), &[&flag]).await;
    let as_bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for path in ["/", "/tenants", "/metrics", "/config", "/nowhere"] {
        let (status, text) = ask(freehold.admin, "GET", path, "", "").await;
        assert_eq!((status, text.contains("-admin.bearer-token-file")), (401, true), "{path}");
        assert_eq!(ask(freehold.admin, "GET", path, &as_bearer("wrong"), "").await.0, 401);
        let (status, text) = ask(freehold.admin, "GET", path, &as_bearer(TOKEN), "").await;
        assert_eq!(status, if path == "/nowhere" { 404 } else { 200 }, "{path}");
        assert!(!text.contains(TOKEN), "{path} tells the token");
    }
    // Who has shown it needs no other, unless a browser has shown it for him.
    let form = "forget=nobody";
    assert_eq!(ask(freehold.admin, "POST", "/ring", &as_bearer(TOKEN), form).await.0, 302);
    let basic = "Authorization: Basic b3BzOmEtdG9rZW4tdGhhdC1ub2JvZHktZ3Vlc3Nlcw==\r\n";
    assert_eq!(ask(freehold.admin, "GET", "/", basic, "").await.0, 200);
    assert_eq!(ask(freehold.admin, "POST", "/ring", basic, form).await.0, 403);

    std::fs::write(&file, "another-token-of-some-length").expect("written");
    let changed = || freehold.process.log();
    wait_for(changed, async || {
        let asked = as_bearer("another-token-of-some-length");
        (ask(freehold.admin, "GET", "/", &asked, "").await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(ask(freehold.admin, "GET", "/", &as_bearer(TOKEN), "").await.0, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_is_too_large_is_told_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let freehold = Freehold::start(dir.path(), &[]).await;
    let form = format!("forget={}", "x".repeat(1 << 20));
    for path in ["/ring", "/memberlist", "/explain", "/distributor/clients/reset"] {
        let (status, text) = ask(freehold.admin, "POST", path, "", &form).await;
        if status == 404 {
            continue;
        }
        let expect = "the form is larger than this page takes\n";
        assert_eq!((status, text.as_str()), (413, expect), "{path}");
    }
}

#[test]
fn a_token_that_cannot_be_read_ends_the_start_before_anything_is_joined() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(["-server.http-listen-address=127.0.0.1", "-server.http-listen-port=0"])
        .args(["-server.grpc-listen-address=127.0.0.1", "-server.grpc-listen-port=0"])
        .args(["-admin.http-listen-address=127.0.0.1:0", "-store.enabled=false"])
        // Nobody is there, so that a join before it would be heard of.
        .args(["-ring.store=etcd", "-etcd.endpoints=127.0.0.1:1"])
        .arg(format!("-admin.bearer-token-file={}", dir.path().join("none").display()))
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot read") && told.contains("/none"), "{told}");
    assert!(!told.contains("ring"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_does_not_fill_the_places_of_operators() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let dir = tempfile::tempdir().expect("a directory");
    let freehold = Freehold::start(dir.path(), &[]).await;
    let from = async |address: [u8; 4]| {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("bound");
        socket.connect(freehold.admin).await.expect("connected")
    };
    // Each sends now and then, as one that would keep its place does.
    let answers = async |stream: &mut tokio::net::TcpStream| {
        let request = b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        if stream.write_all(request).await.is_err() {
            return false;
        }
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.is_ok() && answer.starts_with(b"HTTP/1.1 ")
    };
    let mut held = Vec::new();
    for _ in 0..32 {
        let mut stream = from([127, 0, 0, 2]).await;
        assert!(answers(&mut stream).await, "{}", held.len());
        held.push(stream);
    }
    assert!(!answers(&mut from([127, 0, 0, 2]).await).await, "one too many");
    assert!(answers(&mut from([127, 0, 0, 1]).await).await, "another one comes in");
    held.pop();
    wait_for(
        || freehold.process.log(),
        async || answers(&mut from([127, 0, 0, 2]).await).await.then_some(()),
    )
    .await;
    let log = freehold.process.log();
    assert!(log.contains("a connection of an address that has its part is closed"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_sites_name_leads_nowhere() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let dir = tempfile::tempdir().expect("a directory");
    let freehold = Freehold::start(dir.path(), &[]).await;
    let status = async |host: &str| {
        let mut stream = tokio::net::TcpStream::connect(freehold.admin).await.expect("connect");
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer[9..12]).into_owned()
    };
    assert_eq!(status("evil.example:8081").await, "403");
    assert_eq!(status("localhost:8081").await, "200");
    assert_eq!(status("127.0.0.1").await, "200");
}
