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
