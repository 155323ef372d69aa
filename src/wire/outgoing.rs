//! A write request of our own making, series by series.
//!
//! What we send to try a server out, not what passes through us: that goes on as it lies
//! ([`batch`](super::batch), [`rewrite`](super::rewrite)). The message is Cortex's and
//! Prometheus' (remote write 1.0), which agree in all that is written here.

use super::cursor::BYTES;
use super::write_request::Sample;
use super::writer::{push_counted, push_sample, push_varint, varint_len};

/// Writes one request after the other into the same memory.
#[derive(Debug, Default)]
pub struct RequestWriter {
    body: Vec<u8>,
    /// The series at hand; its length stands before it.
    series: Vec<u8>,
}

impl RequestWriter {
    /// Begins another request.
    pub fn clear(&mut self) {
        self.body.clear();
    }

    /// Appends a series with one sample. Labels come sorted by name.
    pub fn series<'l>(
        &mut self,
        labels: impl Iterator<Item = (&'l [u8], &'l [u8])>,
        sample: Sample,
    ) {
        self.series.clear();
        for (name, value) in labels {
            let [name_len, value_len] = [name.len() as u64, value.len() as u64];
            let tags = 2;
            let len = tags + varint_len(name_len) + name_len + varint_len(value_len) + value_len;
            push_varint(&mut self.series, 1 << 3 | u64::from(BYTES));
            push_varint(&mut self.series, len);
            push_counted(&mut self.series, 1, name);
            push_counted(&mut self.series, 2, value);
        }
        push_sample(&mut self.series, sample);
        push_counted(&mut self.body, 1, &self.series);
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::wire::proto::cortexpb;

    #[test]
    fn a_request_is_read_as_it_was_meant() {
        let long = "v".repeat(300);
        let labels: [(&[u8], &[u8]); 2] = [(b"__name__", b"up"), (b"a", long.as_bytes())];
        let mut writer = RequestWriter::default();
        writer.series(labels.into_iter(), Sample::default());
        writer.clear();
        for (timestamp_ms, value) in [(1_795_994_175_000, 1.5), (0, 0.0)] {
            let sample = Sample { timestamp_ms, value, ..Sample::default() };
            writer.series(labels.into_iter(), sample);
        }
        let read = cortexpb::WriteRequest::decode(writer.body()).expect("Cortex's message");
        assert_eq!(read.timeseries.len(), 2);
        let series = &read.timeseries[0];
        let names: Vec<_> = series.labels.iter().map(|label| &label.name[..]).collect();
        assert_eq!(names, [&b"__name__"[..], b"a"]);
        assert_eq!(&series.labels[1].value[..], long.as_bytes());
        let sample = &series.samples[0];
        assert_eq!((sample.timestamp_ms, sample.value), (1_795_994_175_000, 1.5));
        assert_eq!(read.encode_to_vec(), writer.body(), "nothing else is in it");
    }
}
