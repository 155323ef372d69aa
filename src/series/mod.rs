//! The series room (being built).
