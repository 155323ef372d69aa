//! The pages in a headless Chromium: a walk over all of them with live data, and what changes
//! something done as an operator does it.
//!
//! Without Chromium the tests say that they were skipped. Pictures go to `FREEHOLD_PICTURES`, or
//! to `target/pictures`.

mod devtools;
mod others;
mod walk;

use std::path::PathBuf;

use devtools::{Browser, Look};
use freehold::config::{Command, LoadArgs};
use freehold::output::Screen;

use super::process::Freehold;

/// Every page of a process that does everything; texts for programs are among them.
const PAGES: [&str; 15] = [
    "/",
    "/tenants",
    "/tenants/tenant",
    "/ring",
    "/ring/member",
    "/ring/forget",
    "/distributor/ring",
    "/query-frontend/ring",
    "/distributor/clients",
    "/query-frontend/clients",
    "/front-door",
    "/explain",
    "/ha-tracker",
    "/memberlist",
    "/services",
];

fn pictures() -> PathBuf {
    let folder = std::env::var("FREEHOLD_PICTURES")
        .map(PathBuf::from)
        .unwrap_or_else(|_| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/pictures")));
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    folder
}

/// A process with something on every page: tenants over their limit, clients over their budgets.
async fn busy(dir: &std::path::Path) -> Freehold {
    let freehold = Freehold::start(
        dir,
        &[
            "-ring.store=memberlist",
            "-memberlist.bind-addr=127.0.0.1",
            "-memberlist.bind-port=0",
            "-memberlist.abort-if-join-fails=false",
            "-ingester.lifecycler.ID=one",
            "-client-identity.enabled=true",
            "-distributor.client-identity-ingestion-rate-limit=50",
            "-distributor.client-identity-ingestion-burst-size=200",
            "-distributor.ring.instance-addr=127.0.0.1",
            "-frontend.ring.instance-addr=127.0.0.1",
            "-ingester.max-global-series-per-user=150",
            "-ingester.owned-series-limit-enforcement-enabled=true",
            "-front-door.write.failures-per-minute=600",
        ],
    )
    .await;
    freehold.wait_ready().await;
    let load = load(&[
        &format!("--address=http://{}", freehold.http),
        "--tenants=3",
        "--clients=4",
        "--series=200",
        "--batch=50",
        "--rate=800",
        "--duration=3s",
    ]);
    let never = std::future::pending();
    freehold::load::run(&load, &Screen::FILE, never).await.expect("a load");
    freehold
}

fn load(arguments: &[&str]) -> LoadArgs {
    let all = ["freehold", "load"].iter().chain(arguments).map(std::ffi::OsString::from);
    match Command::parse(all) {
        Ok(Command::Load(args)) => *args,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_sound_in_a_browser() {
    let Some(mut browser) = Browser::start().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let freehold = busy(dir.path()).await;
    let host = freehold.admin.to_string();
    let (seen, faults) = walk::all(&mut browser, &host, &pictures()).await;
    assert!(faults.is_empty(), "{faults:#?}");
    for page in PAGES {
        assert!(seen.contains(page), "no link leads to {page}: {seen:?}");
    }
    // What the walk would say of a page with faults.
    let broken = "document.body.innerHTML = '<h1>a</h1><p>faint</p>\
                  <a href=\"/x\"></a><div class=\"wide\"></div>'; \
                  const p = document.querySelector('p'); p.style.color = '#999'; \
                  p.style.background = '#fff'; p.style.width = '3000px'; 0";
    browser.open(&format!("http://{host}/")).await;
    browser.value(broken).await;
    let told = browser.value(include_str!("look.js")).await.to_string();
    for fault in ["contrast", "wide in a window", "no name for"] {
        assert!(told.contains(fault), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_forgets_a_member_and_forgives_a_budget_by_hand() {
    let Some(mut browser) = Browser::start().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let freehold = busy(dir.path()).await;
    let host = freehold.admin.to_string();
    browser.look(Look { width: 1280, height: 900, is_dark: false }).await;

    browser.open(&format!("http://{host}/ring/forget?id=one")).await;
    browser.follow("document.querySelector('form[method=post] button').click()").await;
    let log = freehold.process.log();
    assert!(log.contains("forgotten by an operator"), "{log}");

    let budget = format!("http://{host}/distributor/clients?tenant=load-1&client=client-1");
    browser.open(&budget).await;
    assert!(browser.value("document.querySelector('form[action$=reset]') !== null").await == true);
    browser.follow("document.querySelector('form[action$=reset] button').click()").await;
    let log = freehold.process.log();
    assert!(log.contains("budget reset by an operator"), "{log}");
    assert!(browser.complaints(&host).is_empty());

    // The same by a page that has no token, from this very site.
    for (path, form) in
        [("/ring", "forget=one"), ("/distributor/clients/reset", "tenant=load-1&client=client-1")]
    {
        let script = format!(
            "fetch('{path}', {{method: 'POST', body: '{form}', redirect: 'manual', headers: \
             {{'content-type': 'application/x-www-form-urlencoded'}}}}).then((answer) => answer.status)"
        );
        assert_eq!(browser.value(&script).await, 403, "{path}");
    }
    // A browser puts refusals on its console.
    assert_eq!(browser.complaints(&host).len(), 2);

    // What is live renews itself, and what a reader chose holds.
    browser.open(&format!("http://{host}/tenants")).await;
    let sorted = "document.querySelector('table[data-sortable] th.number button.sort')";
    browser.value(&format!("{sorted}.click(), 0")).await;
    let before = browser.value(&format!("{sorted}.closest('th').ariaSort")).await;
    let renewed = "new Promise((done) => { const look = () => \
                   document.getElementById('refreshed').textContent.startsWith('as of') \
                   ? done(true) : setTimeout(look, 100); look(); })";
    assert_eq!(browser.value(renewed).await, true);
    assert_eq!(browser.value(&format!("{sorted}.closest('th').ariaSort")).await, before);
    assert!(browser.complaints(&host).is_empty());
}
