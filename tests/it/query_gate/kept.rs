//! Our own cache: seconds, 200 only, without warnings, and never against a word.

use std::time::Duration;

use bytes::Bytes;
use freehold::units::Millis;

use super::{Asker, range, start};

async fn asked(cached: bool, change: impl FnOnce(&mut super::stub::Manner)) -> usize {
    let (stub, gate) = start(|config| {
        config.frontend.cache_ttl = if cached { Millis(20_000) } else { Millis(0) };
    })
    .await;
    change(&mut stub.manner());
    let asker = Asker::new();
    let first = asker.range(gate.http_address, "", "same").await;
    // It is kept once its end is written, which may be after it was read.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = asker.range(gate.http_address, "", "same").await;
    assert_eq!((first.status, &first.body), (second.status, &second.body));
    assert_eq!(second.headers.contains_key("age"), stub.came().len() == 1);
    let count = stub.came().len();
    gate.stop().await.expect("stops");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_whole_and_right_is_kept_and_only_if_told_to() {
    assert_eq!(asked(false, |_| {}).await, 2, "it is off by default");
    assert_eq!(asked(true, |_| {}).await, 1);
    let warned = br#"{"status":"success","data":{"result":[]},"warnings":["partial"]}"#;
    assert_eq!(asked(true, |m| m.pieces = vec![Bytes::from_static(warned)]).await, 2);
    assert_eq!(asked(true, |m| m.status = 422).await, 2);
    assert_eq!(asked(true, |m| m.headers.push(("cache-control", "no-store"))).await, 2);
    assert_eq!(asked(true, |m| m.headers = vec![("content-type", "text/plain")]).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_is_soon_old_and_nobody_gets_it_who_does_not_want_it() {
    let (stub, gate) = start(|config| config.frontend.cache_ttl = Millis(300)).await;
    let asker = Asker::new();
    asker.range(gate.http_address, "", "same").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut fresh = range(gate.http_address, "", "same");
    fresh.headers_mut().insert("cache-control", "no-store".parse().expect("a value"));
    asker.send(fresh).await;
    assert_eq!(stub.came().len(), 2);
    tokio::time::sleep(Duration::from_millis(400)).await;
    asker.range(gate.http_address, "", "same").await;
    assert_eq!(stub.came().len(), 3);
    gate.stop().await.expect("stops");
}
