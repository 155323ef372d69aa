//! A table of texts: headings, columns of one width each, cut where a terminal is too narrow.

use super::screen::{Screen, Style, clean, width};

/// Before each column.
const GAP: &str = "  ";
/// Stands for what was cut off.
const CUT: char = '…';

/// A column's heading, and how its cells lie.
#[derive(Clone, Debug)]
pub struct Column {
    heading: &'static str,
    is_right: bool,
    /// Least cells that it may be cut to; `None` is never cut.
    width_min: Option<usize>,
}

/// A text in a table, and what it is to the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    style: Style,
}

#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Column {
    /// Words: at the left, and never cut.
    pub const fn word(heading: &'static str) -> Self {
        Self { heading, is_right: false, width_min: None }
    }

    /// Figures: at the right, so that digits of one worth stand above each other.
    pub const fn number(heading: &'static str) -> Self {
        Self { heading, is_right: true, width_min: None }
    }

    /// Names and sentences, which may be cut where the terminal is too narrow.
    pub const fn text(heading: &'static str) -> Self {
        Self { heading, is_right: false, width_min: Some(12) }
    }
}

impl Cell {
    /// A text, which may come from outside.
    pub fn new(style: Style, text: impl AsRef<str>) -> Self {
        Self { text: clean(text.as_ref()), style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(Style::Plain, text)
    }
}

impl Table {
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// A cell for each column; what is missing is empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<_> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        row.resize(self.columns.len(), Cell::from(""));
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends the headings and rows; no rows, no headings.
    pub fn print(&self, out: &mut String, screen: &Screen) {
        if self.is_empty() {
            return;
        }
        let widths = self.widths(screen);
        let headings = self.columns.iter().map(|column| Cell::new(Style::Heading, column.heading));
        self.print_line(out, screen, &widths, &headings.collect::<Vec<_>>());
        for row in &self.rows {
            self.print_line(out, screen, &widths, row);
        }
    }

    fn print_line(&self, out: &mut String, screen: &Screen, widths: &[usize], cells: &[Cell]) {
        // Blanks before the next text, so that none is left at a line's end.
        let mut blanks = 0;
        for ((cell, column), width_max) in cells.iter().zip(&self.columns).zip(widths) {
            let text = cut(&cell.text, *width_max);
            let rest = width_max - width(&text);
            blanks += GAP.len();
            if column.is_right {
                blanks += rest;
            }
            if !text.is_empty() {
                out.extend(std::iter::repeat_n(' ', std::mem::take(&mut blanks)));
                out.push_str(&screen.paint(cell.style, &text));
            }
            blanks += if column.is_right { 0 } else { rest };
            // An empty cell takes its place like any other.
        }
        out.push('\n');
    }

    /// As wide as the widest text, or less, the widest column that may be cut first.
    fn widths(&self, screen: &Screen) -> Vec<usize> {
        let widest = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| width(&row[at].text));
            cells.max().unwrap_or(0).max(width(column.heading))
        };
        let mut widths: Vec<_> = self.columns.iter().enumerate().map(widest).collect();
        let Some(width_max) = screen.width else { return widths };
        let taken: usize = widths.iter().map(|width| width + GAP.len()).sum();
        let mut surplus = taken.saturating_sub(width_max);
        while surplus > 0 {
            let least = |at: usize| {
                let column = &self.columns[at];
                Some(column.width_min?.max(width(column.heading)))
            };
            let can_give = |at: &usize| least(*at).is_some_and(|least| widths[*at] > least);
            let Some(at) = (0..widths.len()).filter(can_give).max_by_key(|at| widths[*at]) else {
                break;
            };
            widths[at] -= 1;
            surplus -= 1;
        }
        widths
    }
}

/// The beginning of a text that fits, and a mark where something is missing.
fn cut(text: &str, width_max: usize) -> String {
    if width(text) <= width_max {
        return text.to_owned();
    }
    let mut shown = String::new();
    for c in text.chars() {
        shown.push(c);
        if width(&shown) >= width_max {
            shown.pop();
            break;
        }
    }
    shown.push(CUT);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new([Column::text("tenant"), Column::number("owned"), Column::word("state")]);
        table.row(["team-a".into(), "7".into(), Cell::new(Style::Good, "ok")]);
        table.row(["a-team-with-a-long-name".into(), "12345".into(), "".into()]);
        table
    }

    fn printed(screen: &Screen) -> String {
        let mut out = String::new();
        table().print(&mut out, screen);
        out
    }

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let expect = "
  tenant                   owned  state
  team-a                       7  ok
  a-team-with-a-long-name  12345
";
        assert_eq!(format!("\n{}", printed(&Screen::FILE)), expect);
    }

    #[test]
    fn a_narrow_terminal_cuts_names_and_nothing_else() {
        let screen = Screen { width: Some(32), is_coloured: false };
        let expect = "
  tenant            owned  state
  team-a                7  ok
  a-team-with-a-l…  12345
";
        assert_eq!(format!("\n{}", printed(&screen)), expect);
        // No terminal is too narrow for what is never cut.
        let screen = Screen { width: Some(1), is_coloured: false };
        assert!(printed(&screen).contains("12345"));
    }

    #[test]
    fn colours_take_no_room() {
        let screen = Screen { width: Some(80), is_coloured: true };
        let plain = printed(&screen).replace("\x1b[1m", "").replace("\x1b[32m", "");
        assert_eq!(plain.replace("\x1b[0m", ""), printed(&Screen::FILE));
        assert!(printed(&screen).contains("\x1b[32mok\x1b[0m"));
    }

    #[test]
    fn wide_letters_are_counted_as_they_are_shown() {
        let mut table = Table::new([Column::text("zone"), Column::word("n")]);
        table.row(["中中".into(), "1".into()]);
        table.row(["ab".into(), "2".into()]);
        let mut out = String::new();
        table.print(&mut out, &Screen::FILE);
        assert_eq!(out, "  zone  n\n  中中  1\n  ab    2\n");
        assert_eq!(cut("中中中", 5), "中中…");
    }

    #[test]
    fn without_rows_there_is_nothing_to_head() {
        let mut out = String::new();
        Table::new([Column::word("a")]).print(&mut out, &Screen::FILE);
        assert_eq!(out, "");
    }
}
