//! `/explain` and `freehold explain` against a whole process: what they say of a series is what
//! its push then meets, and nothing that is pasted breaks the page.

use std::net::SocketAddr;

use freehold::app::App;
use freehold::config::{AskedArgs, Config, ExplainArgs, Output};
use freehold::output::{Screen, Told};
use freehold::query::explain::{self, ExplainError};
use freehold::tenant::TenantId;
use freehold::wire::request_of_one;
use freehold::wire::write_request::Sample;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

struct Running {
    app: App,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

/// Everything in one process, with a limit of three series of a tenant.
async fn start() -> Running {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = Config::default();
    config.server.http_listen_address = "127.0.0.1".into();
    config.server.grpc_listen_address = "127.0.0.1".into();
    (config.server.http_listen_port, config.server.grpc_listen_port) = (0, 0);
    config.admin.http_listen_address = "127.0.0.1:0".into();
    config.store.path = dir.path().join("data");
    config.ingester.lifecycler.num_tokens = 8;
    config.limits.max_global_series_per_user = 3;
    config.limits.max_series_per_user = 0;
    let app = App::start(config).await.expect("starts");
    let address = app.admin_address.expect("pages");
    let running = Running { app, address, _dir: dir };
    running.until_active().await;
    running
}

impl Running {
    /// Pushes are taken once the process has joined its ring.
    async fn until_active(&self) {
        let joining = async {
            while self.push("probe", "up", "0").is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), joining).await.expect("ACTIVE");
    }

    fn push(&self, tenant: &str, metric: &str, number: &str) -> Result<(), String> {
        let now = self.app.clock.now();
        let labels = [("__name__", metric), ("n", number)];
        let labels = labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let body =
            request_of_one(labels, Sample { timestamp_ms: now.unix_ms, ..Sample::default() });
        let tenant = TenantId::parse(tenant).expect("a tenant");
        let pushed = self.app.ingester.push(&tenant, &body, now);
        pushed.map(drop).map_err(|error| error.to_string())
    }

    async fn ask(&self, tenant: &str, text: &str, output: Output) -> Result<Told, ExplainError> {
        let args = ExplainArgs {
            asked: AskedArgs {
                address: format!("http://{}", self.address),
                ..AskedArgs::default()
            },
            tenant: tenant.to_owned(),
            text: text.to_owned(),
            histogram: false,
            output,
        };
        explain::run(&args, &Screen::FILE).await
    }

    async fn send(&self, request: String) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("sends");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answers");
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn post(&self, form: &str, more: &str) -> String {
        self.send(format!(
            "POST /explain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        ))
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_says_what_a_push_then_meets() {
    let running = start().await;
    for number in ["1", "2", "3", "4", "1"] {
        let series = format!("up{{n=\"{number}\"}}");
        let told = running.ask("t", &series, Output::Table).await.expect("told");
        match running.push("t", "up", number) {
            Ok(()) => {
                assert!(!told.is_finding, "{}", told.text);
                assert!(told.text.starts_with("admitted: "), "{}", told.text);
            }
            Err(text) => {
                assert_eq!((told.is_finding, number), (true, "4"), "{}", told.text);
                assert!(told.text.starts_with(&format!("refused: {text}\n")), "{}", told.text);
            }
        }
        assert!(told.text.contains("Walk of the ring") && told.text.contains("position"));
    }
    // What the fourth was told, as its sender logs it.
    let text = running.push("t", "up", "4").expect_err("at the limit");
    let told = running.ask("", &text, Output::Json).await.expect("told");
    let json: serde_json::Value = serde_json::from_str(&told.text).expect("JSON");
    assert_eq!(json["explanation"]["errors"][0]["id"], "series-limit-tenant");
    assert_eq!(json["explanation"]["tenant"], "t");
    assert_eq!(json["explanation"]["verdict"], "told");

    let error = running.ask("t", "what is this", Output::Table).await.expect_err("unknown");
    assert!(error.to_string().contains("docs/errors.md"), "{error}");
    let long = format!("up{{a=\"{}\"}}", "x".repeat(60 << 10));
    let told = running.ask("t", &long, Output::Table).await.expect("told by a form");
    assert!(told.is_finding);
    assert!(told.text.contains("label value too long"), "{:.300}", told.text);
    running.app.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_pasted_breaks_the_page() {
    let running = start().await;
    let get = |query: &str| {
        format!("GET /explain?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    };
    let form = running.send(get("")).await;
    assert!(form.starts_with("HTTP/1.1 200") && form.contains("<textarea"), "{form}");
    // {"<script>alert(1)</script>", b="\"><img src=x>"}
    let hostile = "tenant=t&text=%7B%22%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%2C%20b%3D%22%5C%22%3E%3Cimg%20src%3Dx%3E%22%7D";
    for page in [running.send(get(hostile)).await, running.post(hostile, "").await] {
        assert!(page.starts_with("HTTP/1.1 200"), "{page:.200}");
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "{page}");
        assert!(page.contains("alert(1)"), "it is shown");
    }
    let page = running.send(get("tenant=%3Cb%3E&text=up")).await;
    assert!(page.starts_with("HTTP/1.1 400") && !page.contains("<b>"), "{page}");
    let page = running.post("tenant=t&text=up", "Sec-Fetch-Site: cross-site\r\n").await;
    assert!(page.starts_with("HTTP/1.1 403"), "{page:.200}");
    let long = format!("tenant=t&text={}", "%22".repeat(64 << 10));
    let page = running.post(&long, "").await;
    assert!(page.starts_with("HTTP/1.1 400"), "{page:.200}");
    let longer = format!("tenant=t&text={}", "x".repeat(300 << 10));
    let page = running.post(&longer, "").await;
    assert!(page.starts_with("HTTP/1.1 4"), "{page:.200}");
    running.app.stop().await.expect("stops");
}
