//! A batch as the bytes of a request.

use std::sync::Arc;

use snap::raw::{Encoder, max_compress_len};

use super::schedule::{Batch, generation};
use super::series::{Naming, Values};
use crate::wire::outgoing::RequestWriter;
use crate::wire::write_request::Sample;

/// Writes the requests of one lane.
pub struct BodyWriter {
    naming: Arc<Naming>,
    values: Values,
    /// Of a tenant, at a time.
    series: u32,
    request: RequestWriter,
    encoder: Encoder,
}

impl BodyWriter {
    pub fn new(naming: Arc<Naming>, values: Values, series: u32) -> Self {
        let (request, encoder) = (RequestWriter::default(), Encoder::new());
        Self { naming, values, series, request, encoder }
    }

    /// The message as it is; `start_ms` is when the run began, Unix milliseconds.
    pub fn plain(&mut self, batch: &Batch, start_ms: i64) -> Vec<u8> {
        self.write(batch, start_ms);
        self.request.body().to_vec()
    }

    /// The message as one snappy block, as remote write has it.
    pub fn block(&mut self, batch: &Batch, start_ms: i64) -> Vec<u8> {
        self.write(batch, start_ms);
        let body = self.request.body();
        let mut block = vec![0; max_compress_len(body.len())];
        let len = self.encoder.compress(body, &mut block);
        block.truncate(len.expect("a batch has at most 100,000 samples of some KB, not 4 GB"));
        block
    }

    fn write(&mut self, batch: &Batch, start_ms: i64) {
        let timestamp_ms = start_ms.saturating_add(batch.sample_ms);
        self.request.clear();
        for place in batch.places.clone() {
            let id = self.naming.id(place, generation(place, self.series, batch.replaced));
            let value = self.values.at(&id, timestamp_ms);
            let sample = Sample { timestamp_ms, value, ..Sample::default() };
            self.request.series(self.naming.labels(&id), sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::schedule::{Lane, Pace, Shape};
    use crate::wire::write_request::WriteRequest;

    #[test]
    fn a_batch_has_a_sample_for_each_of_its_series() {
        let shape =
            Shape { tenants: 1, series: 7, churn_per_minute: 0, batch: 5, clients: 0, lanes: 1 };
        let mut lane = Lane::new(shape, Pace::Max, 0);
        let mut writer = BodyWriter::new(Arc::new(Naming::new(1, 3, 2)), Values::Gauge, 7);
        for expect in [5, 2] {
            let batch = lane.take(3_000_000);
            let plain = writer.plain(&batch, 1_795_994_175_000);
            let mut arena = Vec::new();
            let mut request = WriteRequest::new(&plain, &mut arena).expect("sound");
            while request.next_series().expect("sound").is_some() {}
            let summary = request.summary;
            assert_eq!((summary.series, summary.samples), (expect, expect));
            assert_eq!(summary.newest_ms, 1_795_994_178_000);
            let block = writer.block(&batch, 1_795_994_175_000);
            let read = snap::raw::Decoder::new().decompress_vec(&block).expect("a block");
            assert_eq!(read, plain);
        }
    }
}
