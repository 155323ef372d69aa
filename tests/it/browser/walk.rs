//! A walk over all pages of one process: every link of its own is followed once per path, and each
//! page is looked at in light and dark, wide and narrow, and gone through by keyboard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use super::devtools::{Browser, Look};

const WIDE: Look = Look { width: 1280, height: 900, is_dark: false };
const DARK: Look = Look { is_dark: true, ..WIDE };
const NARROW: Look = Look { width: 360, height: 740, is_dark: false };
/// Pages of one process; more means that links make up new paths.
const PAGES_MAX: usize = 60;
/// Stops of the keyboard on one page that are gone to.
const STOPS_MAX: u64 = 400;

/// What is wrong, by page.
pub type Faults = BTreeMap<String, Vec<String>>;

/// The paths of all pages that were seen, and their faults.
pub async fn all(browser: &mut Browser, host: &str, pictures: &Path) -> (BTreeSet<String>, Faults) {
    let mut waiting: VecDeque<String> = VecDeque::from(["/".to_owned()]);
    let mut seen = BTreeSet::new();
    let mut faults = Faults::new();
    while let Some(address) = waiting.pop_front() {
        let path = address.split('?').next().unwrap_or_default().to_owned();
        if !seen.insert(path.clone()) {
            continue;
        }
        assert!(seen.len() <= PAGES_MAX, "{seen:?}");
        let (found, links) = one(browser, host, &address, pictures).await;
        if !found.is_empty() {
            faults.insert(address, found);
        }
        waiting.extend(links);
    }
    (seen, faults)
}

/// The faults of one page, and where it leads.
pub async fn one(
    browser: &mut Browser,
    host: &str,
    address: &str,
    pictures: &Path,
) -> (Vec<String>, Vec<String>) {
    let url = format!("http://{host}{address}");
    let mut found = Vec::new();
    browser.look(WIDE).await;
    browser.open(&url).await;
    // Texts for programs are no pages.
    if browser.value("document.contentType").await != "text/html" {
        return (browser.complaints(host), Vec::new());
    }
    for (look, name) in [(NARROW, "narrow"), (DARK, "dark"), (WIDE, "wide")] {
        browser.look(look).await;
        let told = browser.value(include_str!("look.js")).await;
        let told = told.as_array().cloned().unwrap_or_default();
        found.extend(told.iter().map(|fault| format!("{name}: {}", fault.as_str().unwrap_or("?"))));
        let picture = browser.picture().await;
        let path = address.split('?').next().unwrap_or_default().trim_matches('/');
        let path = if path.is_empty() { "overview".to_owned() } else { path.replace('/', "-") };
        std::fs::write(pictures.join(format!("{path}-{name}.png")), picture).expect("written");
    }
    found.extend(by_keyboard(browser).await);
    let links = browser
        .value(
            "[...document.querySelectorAll('a[href]')].map((link) => new URL(link.href))\
             .filter((url) => url.host === location.host)\
             .map((url) => url.pathname + url.search)",
        )
        .await;
    let links = links.as_array().cloned().unwrap_or_default();
    found.extend(browser.complaints(host));
    (found, links.iter().filter_map(|link| link.as_str().map(str::to_owned)).collect())
}

/// What the keyboard does not come to.
async fn by_keyboard(browser: &mut Browser) -> Vec<String> {
    let count = browser
        .value(
            "(() => { document.activeElement?.blur(); \
             window.stops = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]\
             .filter((one) => one.type !== 'hidden' && !one.disabled && one.checkVisibility() && one.getClientRects().length > 0); \
             window.reached = new Set(); return window.stops.length; })()",
        )
        .await;
    let count = count.as_u64().unwrap_or_default().min(STOPS_MAX);
    // Boxes that scroll are stops too.
    for _ in 0..count + 20 {
        browser.press("Tab").await;
        browser.value("window.reached.add(document.activeElement), 0").await;
    }
    let missed = browser
        .value(&format!(
            "window.stops.slice(0, {count}).filter((stop) => !window.reached.has(stop))\
             .map((stop) => stop.outerHTML.slice(0, 100))"
        ))
        .await;
    let missed = missed.as_array().cloned().unwrap_or_default();
    missed.iter().map(|stop| format!("not reached by keyboard: {stop}")).collect()
}
