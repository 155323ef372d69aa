//! Writes the runtime file: one tenant's overrides changed, all else as it was.
//!
//! What must hold: whoever reads the file, we included, sees the old text or the new one, never a
//! part; a crash leaves one of the two; two writers of this process go one after the other, and
//! what somebody else wrote in between is not overwritten.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{FILE_BYTES_MAX, Overrides};
use crate::limits::user_overrides::{self, Change, EditError, Told};
use crate::sync::Mutex;
use crate::tenant::TenantId;

/// Edits begun anew because somebody else changed the file meanwhile. Nobody does so as fast as
/// an edit takes, but for a script gone wild.
const TRIES_MAX: u32 = 5;

/// Why the runtime file was not changed, or not read.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("there is no runtime file; -runtime-config.file names none")]
    NoFile,
    #[error(
        "runtime file {} is a symbolic link, as in a mounted ConfigMap; change what it is made of",
        path.display()
    )]
    Link { path: PathBuf },
    #[error("runtime file {} is not a regular file", path.display())]
    NotRegular { path: PathBuf },
    #[error("runtime file {} is or would be longer than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("cannot {act} runtime file {}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    #[error("runtime file {} is changed by others all the time", path.display())]
    Contended { path: PathBuf },
    #[error("the overrides of tenant {tenant} were not changed")]
    Edit { tenant: String, source: EditError },
}

/// The runtime file, for whoever edits overrides. Its calls block.
pub struct RuntimeFileEditor {
    /// Empty: there is none.
    path: PathBuf,
    overrides: Arc<Overrides>,
    /// Held over an edit, so that edits follow each other.
    turn: Mutex<()>,
}

impl RuntimeFileEditor {
    /// `file` as the configuration names it.
    pub fn new(file: &str, overrides: Arc<Overrides>) -> Self {
        Self { path: PathBuf::from(file), overrides, turn: Mutex::new(()) }
    }

    /// What the file says of a tenant now, which is in force soon if it is not yet.
    pub fn told(&self, tenant: &TenantId) -> Result<Told, WriteError> {
        let text = self.read()?;
        user_overrides::told(&text, tenant, &self.overrides).map_err(|e| edit_error(tenant, e))
    }

    /// Changes a tenant's overrides. They are in force once the file is read again.
    pub fn change(&self, tenant: &TenantId, change: Change<'_>) -> Result<(), WriteError> {
        // An edit that panicked has left the file as it was.
        let _turn = self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for _ in 0..TRIES_MAX {
            let before = self.read()?;
            let after = user_overrides::edited(&before, tenant, change, &self.overrides)
                .map_err(|e| edit_error(tenant, e))?;
            if after == before {
                return Ok(());
            }
            if after.len() as u64 > FILE_BYTES_MAX {
                return Err(WriteError::TooLong { path: self.path.clone() });
            }
            if self.replace(&before, &after)? {
                return Ok(());
            }
        }
        Err(WriteError::Contended { path: self.path.clone() })
    }

    fn read(&self) -> Result<String, WriteError> {
        let path = &self.path;
        if path.as_os_str().is_empty() {
            return Err(WriteError::NoFile);
        }
        let found = fs::symlink_metadata(path).map_err(|e| self.io("find", e))?;
        if found.is_symlink() {
            return Err(WriteError::Link { path: path.clone() });
        }
        // A pipe would keep us waiting for its other end.
        if !found.is_file() {
            return Err(WriteError::NotRegular { path: path.clone() });
        }
        let file = File::open(path).map_err(|e| self.io("read", e))?;
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        if read.map_err(|e| self.io("read", e))? as u64 > FILE_BYTES_MAX {
            return Err(WriteError::TooLong { path: path.clone() });
        }
        Ok(text)
    }

    /// Puts `after` in the file's place, unless it holds something else than `before` by now.
    fn replace(&self, before: &str, after: &str) -> Result<bool, WriteError> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        // Hidden, and of this process alone; edits of this process follow each other.
        let beside = directory.join(format!(".{name}.{}.tmp", std::process::id()));
        let written = self.write_beside(&beside, after);
        let replaced = written.and_then(|()| {
            if self.read()? != before {
                return Ok(false);
            }
            fs::rename(&beside, &self.path).map_err(|e| self.io("replace", e))?;
            // The name is on the disk only with its directory.
            let directory = File::open(directory).and_then(|directory| directory.sync_all());
            directory.map_err(|e| self.io("sync the directory of", e))?;
            Ok(true)
        });
        if !matches!(replaced, Ok(true)) {
            // Gone already, or in a directory that we may not write to.
            let _ = fs::remove_file(&beside);
        }
        replaced
    }

    fn write_beside(&self, beside: &Path, text: &str) -> Result<(), WriteError> {
        let permissions = fs::metadata(&self.path).map_err(|e| self.io("find", e))?.permissions();
        let write = || {
            let mut file = File::create(beside)?;
            file.set_permissions(permissions)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|e| self.io("write beside", e))
    }

    fn io(&self, act: &'static str, source: io::Error) -> WriteError {
        WriteError::Io { act, path: self.path.clone(), source }
    }
}

fn edit_error(tenant: &TenantId, source: EditError) -> WriteError {
    WriteError::Edit { tenant: tenant.as_str().to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use serde_json::{Map, Value, json};

    use super::*;
    use crate::limits::{InstanceLimits, Limits};

    const FILE: &str = "# kept\noverrides:\n  b:\n    ingestion_rate: 3\n\
                        api_allowed_limits: [ingestion_rate]\n";

    fn editor(path: &Path) -> RuntimeFileEditor {
        let overrides = Overrides::new(Limits::default(), InstanceLimits::default());
        RuntimeFileEditor::new(&path.display().to_string(), Arc::new(overrides))
    }

    fn rate(rate: u32) -> Map<String, Value> {
        json!({ "ingestion_rate": rate }).as_object().cloned().expect("a map")
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).expect("tenant")
    }

    #[test]
    fn a_change_keeps_permissions_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("runtime.yaml");
        fs::write(&path, FILE).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let editor = editor(&path);
        editor.change(&tenant("a"), Change::Set(&rate(5))).expect("changed");
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.starts_with("# kept\n") && text.contains("\"a\":\n    ingestion_rate: 5\n"));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
        let Told::Limits(limits) = editor.told(&tenant("a")).expect("read") else { panic!("told") };
        assert_eq!(limits["ingestion_rate"], json!(5.0));
        editor.change(&tenant("a"), Change::Delete).expect("changed");
        assert_eq!(fs::read_to_string(&path).expect("read"), FILE);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1, "no other file");
    }

    #[test]
    fn concurrent_changes_are_all_kept() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("runtime.yaml");
        fs::write(&path, FILE).expect("written");
        let editor = editor(&path);
        std::thread::scope(|scope| {
            for number in 0..8_u32 {
                let editor = &editor;
                scope.spawn(move || {
                    let tenant = tenant(&format!("t{number}"));
                    editor.change(&tenant, Change::Set(&rate(number))).expect("changed");
                });
            }
        });
        for number in 0..8_u32 {
            let told = editor.told(&tenant(&format!("t{number}"))).expect("read");
            let Told::Limits(limits) = told else { panic!("t{number} is not there") };
            assert_eq!(limits["ingestion_rate"], json!(f64::from(number)));
        }
    }

    #[test]
    fn files_that_cannot_be_replaced_are_named() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("runtime.yaml");
        let check = |expect: &str| {
            let error = editor(&path).change(&tenant("a"), Change::Set(&rate(5)));
            let error = error.expect_err(expect).to_string();
            assert!(error.contains(expect), "{error}");
        };
        check("cannot find runtime file");
        let target = dir.path().join("target.yaml");
        fs::write(&target, FILE).expect("written");
        symlink(&target, &path).expect("linked");
        check("is a symbolic link, as in a mounted ConfigMap");
        assert_eq!(fs::read_to_string(&target).expect("read"), FILE);
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        check("is not a regular file");
        let none = editor(Path::new("")).told(&tenant("a")).expect_err("none").to_string();
        assert!(none.contains("-runtime-config.file names none"), "{none}");
    }

    #[test]
    fn a_refused_change_leaves_the_file() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("runtime.yaml");
        fs::write(&path, FILE).expect("written");
        let limits = json!({ "ingestion_rate": 5, "max_exemplars": 1 });
        let limits = limits.as_object().cloned().expect("a map");
        let error = editor(&path).change(&tenant("a"), Change::Set(&limits)).expect_err("refused");
        assert!(matches!(error, WriteError::Edit { source: EditError::NotAllowed { .. }, .. }));
        assert_eq!(fs::read_to_string(&path).expect("read"), FILE);
    }
}
