//! The operations a transformer needs, and their CPU implementation.
