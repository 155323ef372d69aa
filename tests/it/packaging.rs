//! What the Debian package's scripts do, in a root directory of their own and with a `systemctl`
//! that only writes down what it was told.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let host = Self { root };
        for dir in [
            "bin",
            "run/systemd/system",
            "etc/default",
            "etc/freehold",
            "etc/systemd/system/multi-user.target.wants",
            "var/lib/private/freehold",
        ] {
            fs::create_dir_all(host.at(dir)).expect("made");
        }
        symlink("private/freehold", host.at("var/lib/freehold")).expect("linked");
        // Lists one unit that runs.
        let systemctl = format!(
            "#!/bin/sh\necho \"$*\" >>{}\n[ \"$1\" != list-units ] || echo freehold.service loaded\n",
            host.at("told").display()
        );
        fs::write(host.at("bin/systemctl"), systemctl).expect("written");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(host.at("bin/systemctl"), mode).expect("executable");
        host
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path)
    }

    fn enable(&self, unit: &str) {
        let link = self.at("etc/systemd/system/multi-user.target.wants").join(unit);
        symlink("/lib/systemd/system/freehold.service", link).expect("linked");
    }

    /// Runs a script, and gives back what it told `systemctl` but for lists and reloads.
    fn run(&self, script: &str, args: &[&str]) -> Vec<String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/debian").join(script);
        let mut text = fs::read_to_string(source).expect("a script");
        for dir in ["/var/lib", "/etc/", "/run/"] {
            text = text.replace(dir, &format!("{}{dir}", self.root.path().display()));
        }
        fs::write(self.at("script"), text).expect("written");
        let path = format!("{}:/usr/bin:/bin", self.at("bin").display());
        let mut command = Command::new("sh");
        command.arg(self.at("script")).args(args).env("PATH", path);
        let done = command.output().expect("sh runs");
        assert!(done.status.success(), "{script} {args:?}: {done:?}");
        let told = fs::read_to_string(self.at("told")).unwrap_or_default();
        let _ = fs::remove_file(self.at("told"));
        let acts =
            told.lines().filter(|line| !line.starts_with("list-") && *line != "daemon-reload");
        acts.map(str::to_owned).collect()
    }
}

#[test]
fn a_package_that_comes_back_starts_what_was_enabled() {
    let host = Host::new();
    assert!(host.run("preinst", &["install"]).is_empty());
    let first = host.run("postinst", &["configure", ""]);
    assert_eq!(first, ["enable freehold.service", "start freehold.service"]);
    host.enable("freehold.service");
    host.enable("freehold@sidecar.service");

    assert!(host.run("preinst", &["upgrade", "0.1.0", "0.2.0"]).is_empty());
    assert_eq!(host.run("postinst", &["configure", "0.1.0"]), ["restart freehold.service"]);

    assert_eq!(host.run("prerm", &["remove"]), ["stop freehold.service"]);
    assert!(host.run("postrm", &["remove"]).is_empty());
    host.run("preinst", &["install", "0.2.0"]);
    let again = host.run("postinst", &["configure", "0.2.0"]);
    assert_eq!(again, ["start freehold.service", "start freehold@sidecar.service"]);
    assert_eq!(host.run("postinst", &["configure", "0.2.0"]), ["restart freehold.service"]);
}

#[test]
fn a_purge_takes_what_is_ours_and_nothing_else_and_may_be_repeated() {
    let host = Host::new();
    host.enable("freehold@sidecar.service");
    for ours in ["var/lib/private/freehold-sidecar", "var/lib/freehold-exporter"] {
        fs::create_dir_all(host.at(ours)).expect("made");
    }
    symlink("private/freehold-sidecar", host.at("var/lib/freehold-sidecar")).expect("linked");
    for file in ["etc/default/freehold-sidecar", "etc/default/freehold-exporter"] {
        fs::write(host.at(file), "").expect("written");
    }
    for _ in 0..2 {
        host.run("postrm", &["purge"]);
        for gone in [
            "var/lib/freehold",
            "var/lib/private/freehold",
            "var/lib/freehold-sidecar",
            "var/lib/private/freehold-sidecar",
            "etc/default/freehold-sidecar",
            "etc/freehold",
            "etc/systemd/system/multi-user.target.wants/freehold@sidecar.service",
        ] {
            assert!(fs::symlink_metadata(host.at(gone)).is_err(), "{gone} is still there");
        }
        for kept in ["var/lib/freehold-exporter", "etc/default/freehold-exporter"] {
            assert!(host.at(kept).exists(), "{kept} is another package's");
        }
    }
}
