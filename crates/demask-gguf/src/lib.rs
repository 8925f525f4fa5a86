//! Reads and writes GGUF files; knows bytes, not models.
