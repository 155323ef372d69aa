//! What the operating system says of this process, read from `/proc` at scrape time.
//!
//! Names and meanings are those of all Prometheus clients. What cannot be read is left out: there
//! is no such metric then, rather than a wrong one.

use std::fs;

use prometheus::Registry;

use crate::exposition::{AtScrape, Families};

/// Linux tells times in hundredths of a second, whatever the kernel's own tick is.
const TICKS_PER_S: f64 = 100.0;

/// Adds the families to the registry.
pub(super) fn register(registry: &Registry) {
    let source = AtScrape::new("proc_families", read);
    registry.register(Box::new(source)).expect("no other source has this name");
}

fn read(families: &mut Families) {
    let text = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).ok();
    if let Some(seconds) = text("stat").as_deref().and_then(cpu_seconds) {
        let help = "Total user and system CPU time spent in seconds.";
        families.counters("process_cpu_seconds_total", help).sample([], seconds);
    }
    if let Some(status) = text("status") {
        for (name, help, field, unit) in [
            ("process_resident_memory_bytes", "Resident memory size in bytes.", "VmRSS:", 1024.0),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "VmSize:", 1024.0),
            ("process_threads", "Number of OS threads in the process.", "Threads:", 1.0),
        ] {
            if let Some(value) = number_of(&status, field) {
                families.gauge(name, help, value * unit);
            }
        }
    }
    if let Some(max) = text("limits").as_deref().and_then(|text| number_of(text, "Max open files"))
    {
        families.gauge("process_max_fds", "Maximum number of open file descriptors.", max);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // One of them is the directory that we look into.
        let open = files.count().saturating_sub(1);
        families.gauge("process_open_fds", "Number of open file descriptors.", open as f64);
    }
}

/// The 14th and 15th field of `stat`; the second, a name, may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS_PER_S)
}

/// The first number behind a name at the start of a line; `unlimited` is none.
fn number_of(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|number| number as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_bracket_and_spaces_hides_no_field() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 4 0 1 2 3";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn numbers_are_found_by_their_names() {
        let status = "Name:\tfreehold\nVmSize:\t    2048 kB\nThreads:\t9\n";
        assert_eq!(number_of(status, "VmSize:"), Some(2048.0));
        assert_eq!(number_of(status, "Threads:"), Some(9.0));
        assert_eq!(number_of(status, "VmRSS:"), None);
        let limits = "Max open files            1024                 4096                 files\n";
        assert_eq!(number_of(limits, "Max open files"), Some(1024.0));
        let limits = "Max open files            unlimited            unlimited            files\n";
        assert_eq!(number_of(limits, "Max open files"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_files_and_time() {
        let mut families = Families::default();
        read(&mut families);
        let families = families.into_vec();
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name() == name);
            let metric = &family.unwrap_or_else(|| panic!("{name}")).get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_threads") >= 1.0);
    }
}
