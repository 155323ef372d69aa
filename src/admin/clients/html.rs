//! The pages about budgets as HTML. Programs are told the same structs as JSON, which the command
//! `freehold clients` reads, so what only a page needs is kept apart from them.

use askama::Template;

use super::super::site::Frame;
use super::kind::Words;
use super::page::{ClientPage, ClientsPage, ROWS_MAX, Refused, Row};
use super::query_of;
use crate::admin::overview::reasons;
use crate::clients::REFUSED_MAX;

#[derive(Template)]
#[template(path = "clients.html", config = "src/admin/askama.toml")]
pub(super) struct ListHtml {
    pub frame: Frame,
    pub page: ClientsPage,
}

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/askama.toml")]
pub(super) struct OneHtml {
    pub frame: Frame,
    pub page: ClientPage,
}

impl ListHtml {
    fn link(&self, row: &Row) -> String {
        query_of(self.page.kind(), &self.page.tenant, Some(&row.client))
    }

    fn words(&self) -> &'static Words {
        self.page.words()
    }

    /// The tenant's own budget first.
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.page.tenant_budget.iter().chain(&self.page.clients)
    }
}

impl OneHtml {
    fn all(&self) -> String {
        query_of(self.page.kind(), &self.page.tenant, None)
    }

    fn words(&self) -> &'static Words {
        self.page.words()
    }
}

impl Refused {
    fn means(&self) -> &'static str {
        reasons::of(&self.reason).means
    }
}
