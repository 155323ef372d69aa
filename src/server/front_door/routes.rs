//! Which class of routes a path is of.

use crate::front_door::RouteClass;

/// Paths that take writes; as they are routed, so they are compared, byte for byte.
const WRITES: [&str; 3] = ["/api/v1/push", "/api/prom/push", "/api/v1/otlp/v1/metrics"];

/// Whoever watches this process comes often, without a credential, and must see it when it is
/// besieged: an orchestrator would end it, and the alert about the siege would never come.
const EXEMPT: [&str; 2] = ["/ready", "/metrics"];

/// Names of the query API right below `/api/v1`.
const QUERIES: [&str; 11] = [
    "query",
    "query_range",
    "query_exemplars",
    "read",
    "series",
    "labels",
    "label",
    "metadata",
    "format_query",
    "parse_query",
    "status",
];

/// Tells paths apart.
#[derive(Clone, Debug)]
pub struct Routes {
    query_prefixes: Vec<String>,
    /// All of `/api/v1` that takes no writes is the query API's.
    has_bare_api: bool,
}

impl Default for Routes {
    fn default() -> Self {
        Self::new(["/prometheus", "/api/prom"])
    }
}

impl Routes {
    /// The query API lies below each of these, and below `/api/v1`.
    pub fn new<'a>(query_prefixes: impl IntoIterator<Item = &'a str>) -> Self {
        let trimmed = |prefix: &str| prefix.trim_end_matches('/').to_owned();
        let given: Vec<_> = query_prefixes.into_iter().map(trimmed).collect();
        let has_bare_api = given.iter().any(String::is_empty);
        // An empty prefix would make every page a query.
        let query_prefixes = given.into_iter().filter(|prefix| !prefix.is_empty()).collect();
        Self { query_prefixes, has_bare_api }
    }

    /// `None` of a path that is exempt.
    pub fn class(&self, path: &str) -> Option<RouteClass> {
        if WRITES.contains(&path) {
            return Some(RouteClass::Write);
        }
        if EXEMPT.contains(&path) {
            return None;
        }
        let is_below = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_named = || {
            let name = path.strip_prefix("/api/v1/")?.split('/').next()?;
            Some(self.has_bare_api || QUERIES.contains(&name))
        };
        match is_named().unwrap_or(false) || self.query_prefixes.iter().any(|one| is_below(one)) {
            true => Some(RouteClass::Query),
            false => Some(RouteClass::Admin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_class() {
        let routes = Routes::default();
        let check = |path: &str, class| assert_eq!(routes.class(path), class, "{path}");
        for path in ["/api/v1/push", "/api/prom/push", "/api/v1/otlp/v1/metrics"] {
            check(path, Some(RouteClass::Write));
        }
        for path in [
            "/prometheus/api/v1/query",
            "/prometheus/api/v1/push",
            "/prometheus",
            "/api/prom/api/v1/read",
            "/api/prom/push/",
            "/api/v1/read",
            "/api/v1/label/job/values",
            "/api/v1/query_range",
        ] {
            check(path, Some(RouteClass::Query));
        }
        for path in ["/", "/config", "/prometheusx", "/api/v1/user-overrides", "/api/v1/push/", ""]
        {
            check(path, Some(RouteClass::Admin));
        }
        check("/ready/", Some(RouteClass::Admin));
        check("/ready", None);
        check("/metrics", None);
        assert_eq!(routes.class("/api/v1/rules"), Some(RouteClass::Admin));
        assert_eq!(Routes::new([""]).class("/api/v1/rules"), Some(RouteClass::Query));
        assert_eq!(Routes::new([""]).class("/api/v1/push"), Some(RouteClass::Write));
        assert_eq!(Routes::new(["/", "/q/"]).class("/other"), Some(RouteClass::Admin));
        assert_eq!(Routes::new(["/", "/q/"]).class("/q/api/v1/query"), Some(RouteClass::Query));
    }
}
