//! A trend as pages draw and tell it.

use serde::Serialize;

use crate::ingester::history::{Sample, Span, Trend};

/// Size of the small drawing in a line of a table.
const SPARK: Size = Size { width: 120.0, height: 24.0 };
/// Size of a tenant's own drawing.
const CHART: Size = Size { width: 720.0, height: 160.0 };
/// Room at the top and the bottom of a drawing, for the width of its line.
const MARGIN: f64 = 2.0;
/// A range of counts narrower than this part of them is drawn as wide as it: what is nearly level
/// should look so.
const RANGE_SHARE_MIN: f64 = 0.05;
/// A limit farther above the counts than so many times is left out of the drawing.
const LIMIT_TIMES_MAX: u64 = 4;

#[derive(Clone, Copy)]
struct Size {
    width: f64,
    height: f64,
}

/// The last hour of a count.
#[derive(Serialize)]
pub(super) struct TrendView {
    /// Series per hour; `None` while it is not known.
    pub(super) per_hour: Option<f64>,
    /// The time that this was seen over.
    pub(super) over_seconds: Option<u32>,
    /// Oldest first.
    pub(super) samples: Vec<Point>,
    /// Points of the small drawing's line.
    #[serde(skip)]
    pub(super) line: String,
}

#[derive(Serialize)]
pub(super) struct Point {
    pub(super) seconds_ago: u32,
    pub(super) count: u32,
}

/// A tenant's own drawing, from no series at all up to the limit.
pub(super) struct Chart {
    pub(super) line: String,
    /// Height of the limit's line, where it is near enough.
    pub(super) limit: Option<String>,
    /// The count at the top.
    pub(super) top: u64,
    /// How far back the left end is.
    pub(super) span: String,
}

impl TrendView {
    pub(super) fn new(trend: &Trend) -> Self {
        let now_s = trend.samples.last().map_or(0, |last| last.at_s);
        let points = trend.samples.iter().map(|sample| Point {
            seconds_ago: now_s.saturating_sub(sample.at_s),
            count: sample.count,
        });
        let counts = trend.samples.iter().map(|sample| f64::from(sample.count));
        let (least, most) = (counts.clone().fold(f64::MAX, f64::min), counts.fold(0.0, f64::max));
        let missing = ((most * RANGE_SHARE_MIN).max(1.0) - (most - least)).max(0.0);
        let range = (least - missing / 2.0, most + missing / 2.0);
        Self {
            per_hour: trend.slope.map(|slope| (slope.per_s * 36_000.0).round() / 10.0),
            over_seconds: trend.slope.map(|slope| slope.over_s),
            samples: points.collect(),
            line: line(&trend.samples, SPARK, range),
        }
    }

    /// The trend in words.
    pub(super) fn says(&self) -> String {
        let (Some(per_hour), Some(over_s)) = (self.per_hour, self.over_seconds) else {
            return "not known yet".to_owned();
        };
        let over = Span(over_s.into());
        match per_hour {
            few if few.abs() < 10.0 => format!("{few:+} an hour over {over}"),
            many => format!("{many:+.0} an hour over {over}"),
        }
    }
}

impl Chart {
    pub(super) const WIDTH: f64 = CHART.width;
    pub(super) const HEIGHT: f64 = CHART.height;

    /// `None` where there is no line to draw yet.
    pub(super) fn new(trend: &Trend, limit: Option<u64>) -> Option<Self> {
        let [first, .., last] = trend.samples.as_slice() else { return None };
        let most = trend.samples.iter().map(|sample| sample.count).max().unwrap_or(0);
        let most = u64::from(most).max(1);
        let limit =
            limit.filter(|&limit| limit > 0 && limit <= most.saturating_mul(LIMIT_TIMES_MAX));
        let top = limit.map_or(most, |limit| limit.max(most));
        let range = (0.0, top as f64);
        Some(Self {
            line: line(&trend.samples, CHART, range),
            limit: limit.map(|limit| format!("{:.1}", height(limit as f64, CHART, range))),
            top,
            span: Span(u64::from(last.at_s - first.at_s)).to_string(),
        })
    }
}

/// Points of a line, as SVG has them: numbers only.
fn line(samples: &[Sample], size: Size, range: (f64, f64)) -> String {
    let [first, .., last] = samples else { return String::new() };
    let span_s = f64::from(last.at_s.saturating_sub(first.at_s)).max(1.0);
    let points = samples.iter().map(|sample| {
        let passed_s = f64::from(sample.at_s.saturating_sub(first.at_s));
        let x = passed_s / span_s * size.width;
        format!("{x:.1},{:.1}", height(f64::from(sample.count), size, range))
    });
    points.collect::<Vec<_>>().join(" ")
}

/// How far down a count is drawn.
fn height(count: f64, size: Size, (least, most): (f64, f64)) -> f64 {
    let part = (count - least) / (most - least).max(f64::MIN_POSITIVE);
    size.height - MARGIN - part * (size.height - 2.0 * MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingester::history::Slope;

    fn trend(samples: &[(u32, u32)], slope: Option<Slope>) -> Trend {
        let samples = samples.iter().map(|&(at_s, count)| Sample { at_s, count }).collect();
        Trend { samples, slope }
    }

    #[test]
    fn a_line_goes_from_the_oldest_sample_to_now_and_up_with_the_count() {
        let view = TrendView::new(&trend(&[(100, 0), (400, 50), (700, 100)], None));
        assert_eq!(view.line, "0.0,22.0 60.0,12.0 120.0,2.0");
        let ago: Vec<_> = view.samples.iter().map(|point| point.seconds_ago).collect();
        assert_eq!(ago, [600, 300, 0]);
    }

    #[test]
    fn what_is_nearly_level_looks_so() {
        let view = TrendView::new(&trend(&[(0, 1000), (60, 1001)], None));
        let heights: Vec<f64> = view
            .line
            .split(' ')
            .map(|point| point.split_once(',').expect("a point").1.parse().expect("a number"))
            .collect();
        assert!((heights[0] - heights[1]).abs() < 1.0, "{heights:?}");
        assert!((heights[0] - 12.0).abs() < 1.0, "{heights:?}");
    }

    #[test]
    fn nothing_is_drawn_of_one_sample() {
        for samples in [&[][..], &[(5, 7)]] {
            assert_eq!(TrendView::new(&trend(samples, None)).line, "");
            assert!(Chart::new(&trend(samples, None), Some(5)).is_none());
        }
    }

    #[test]
    fn a_trend_is_told_with_the_time_that_it_was_seen_over() {
        let says = |per_s: f64, over_s| {
            TrendView::new(&trend(&[(0, 1), (9, 1)], Some(Slope { per_s, over_s }))).says()
        };
        assert_eq!(says(1.0, 2700), "+3600 an hour over 45 min");
        assert_eq!(says(-0.001, 3600), "-3.6 an hour over 1 h");
        assert_eq!(says(0.0, 60), "+0 an hour over 1 min");
        assert_eq!(TrendView::new(&trend(&[], None)).says(), "not known yet");
    }

    #[test]
    fn a_chart_shows_the_limit_where_it_is_near() {
        let samples = [(0, 50), (3600, 100)];
        let near = Chart::new(&trend(&samples, None), Some(200)).expect("a line");
        assert_eq!((near.top, near.limit.as_deref(), &*near.span), (200, Some("2.0"), "1 h"));
        let far = Chart::new(&trend(&samples, None), Some(401)).expect("a line");
        assert_eq!((far.top, far.limit), (100, None));
        let passed = Chart::new(&trend(&samples, None), Some(50)).expect("a line");
        assert_eq!((passed.top, passed.limit.as_deref()), (100, Some("80.0")));
    }
}
