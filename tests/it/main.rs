//! Tests of whole parts against each other, in one binary.

mod ring_sim;
