//! A trace, shown step by step.
