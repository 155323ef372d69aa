//! Nothing raw: what a process logs, counts and shows names no address and no token that it met.

use axum::body::Bytes;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::task::JoinSet;

use super::super::process::Freehold;
use super::{Guarded, PROXY, STRANGER, Sender};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_address_and_no_token_is_logged_counted_or_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let salt = directory.path().join("salt");
    std::fs::write(&salt, "the salt of a test").expect("written");
    let (behind, mut tasks) = (Guarded::default(), JoinSet::new());
    let flags = [
        "-target=distributor".to_owned(),
        format!("-distributor.upstream-url=http://{}", behind.listen(&mut tasks).await),
        "-log.level=debug".to_owned(),
        "-front-door.trusted-proxies=127.0.0.1".to_owned(),
        "-front-door.basic-user".to_owned(),
        "-front-door.ratelimit-headers=draft".to_owned(),
        format!("-front-door.salt-file={}", salt.display()),
        "-front-door.write.failures-per-minute=5".to_owned(),
        "-front-door.write.requests-per-address-per-minute=30".to_owned(),
        "-front-door.write.requests-per-credential-per-minute=10".to_owned(),
        "-front-door.query.failures-per-minute=5".to_owned(),
        "-front-door.deny=203.0.113.0/24".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let gate = Freehold::start(directory.path(), &flags).await;

    let mut sender = Sender::connect(gate.http, PROXY).await;
    let mut answers = String::new();
    let basic = BASE64_STANDARD.encode("wilhelmina:pa55phrase");
    for turn in 0..12 {
        for (address, credential) in [
            ("198.51.100.177", "Bearer good-t0ken"),
            ("2001:db8:abcd:5600::99", "Bearer st0len-token"),
            ("[2001:db8:abcd:5600::99]:4711", "Bearer st0len-token"),
            ("203.0.113.66", "Bearer good-t0ken"),
            ("198.51.100.178", &format!("Basic {basic}")),
            ("198.51.100.179, gibberish-hop", "Bearer good-t0ken"),
        ] {
            for path in ["/api/v1/push", "/prometheus/api/v1/query"] {
                let headers = [
                    ("x-forwarded-for", address),
                    ("authorization", credential),
                    ("x-scope-orgid", "a"),
                ];
                let answer = sender.send("POST", path, &headers, super::good()).await;
                answers.push_str(&format!("{turn} {} {:?}\n", answer.body, answer.headers));
            }
        }
    }
    let mut stranger = Sender::connect(gate.http, STRANGER).await;
    stranger.write("198.51.100.180", "st0len-token").await;
    for path in ["/config", "/config?mode=diff", "/metrics", "/runtime_config", "/"] {
        let page = sender.send("GET", path, &[], Bytes::new()).await;
        answers.push_str(&page.body);
    }
    let log = gate.process.log();
    assert!(log.contains("refused at the front door"), "{log}");
    assert!(log.contains("address_key"), "{log}");
    assert!(answers.contains("freehold_front_door_refused_total"), "{answers}");
    for raw in [
        "198.51.100",
        "203.0.113.66",
        "2001:db8",
        "abcd:56",
        "127.0.0.2",
        "t0ken",
        "st0len",
        "wilhelmina",
        "pa55phrase",
        &basic,
        "gibberish",
        "the salt of",
    ] {
        assert!(!log.contains(raw), "{raw} in the log\n{log}");
        assert!(!answers.contains(raw), "{raw} in an answer\n{answers}");
    }
}
